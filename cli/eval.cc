#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/progress.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/coco/summary.h"
#include "qna/data/open_dataset.h"
#include "qna/data/picture_dataset.h"
#include "qna/format/text.h"
#include "qna/predict/evaluate.h"
#include "qna/report/metric_text.h"

namespace qna::cli {
namespace {

struct EvalArguments {
  std::string file;
  data::DatasetOptions data{.path = "", .split = "val"};
  int64_t batch = 0;  // 0: 64, of a detector 4
  int workers = 0;
  bool skip_broken = false;
  bool as_json = false;
  int64_t last = 0;  // of an auto-encoder: only the last so many pictures; 0: all
  // Of a detector:
  std::string annotations;
  std::string results;  // file for the detections; empty: none
};

data::LoaderOptions loader_options(const EvalArguments& a) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return {.batch = a.batch,
          .workers = a.workers > 0 ? a.workers : cores,
          .shuffle = false,
          .skip_broken = a.skip_broken,
          .cache_bytes = 0};
}

// `progress` counts batches and shows pictures, of which there are so many.
predict::EvaluationRun tell_pictures(Progress& progress, const EvalArguments& a, int64_t pictures) {
  return {.tell = [&progress, batch = a.batch, pictures](int64_t done, int64_t) {
    progress.show(done, fmt::format("{} pictures", std::min(done * batch, pictures)));
  }};
}

void print_broken(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print(stderr, "left out: {}\n", line);
}

// Of the detector's classes. They must mean in the annotations what they mean in its file.
std::vector<int64_t> category_ids(const EvalArguments& a, const engine::ModelInfo& info,
                                  const data::DetectionDataset& dataset, bool has_ids) {
  const coco::Annotations& truth = dataset.truth();
  if (!has_ids) {
    check(!info.labels.empty(), "{}: the file does not say the names of its classes", a.file);
    return predict::ids_of(truth.categories);  // those of the names
  }
  const std::vector<int64_t>& ids = info.category_ids;
  check(!ids.empty(), "{}: the file does not say the ids of its classes", a.file);
  size_t known = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<int64_t> place = truth.find_category(ids[i]);
    if (!place) continue;
    ++known;
    const std::string& name = truth.categories[*place].name;
    if (i < info.labels.size() && name != info.labels[i]) {
      fmt::print(stderr, "note: category {} is {} in {}, but {} in {}\n", ids[i],
                 format::in_quotes(name), a.annotations, format::in_quotes(info.labels[i]), a.file);
    }
  }
  check(known > 0, "{}: it has none of the detector's {} categories, such as id {}", a.annotations,
        ids.size(), ids[0]);
  return ids;
}

void run_detector(const EvalArguments& a, const engine::Model& model) {
  check(!a.annotations.empty(),
        "{}: this is a detector; give the objects of the pictures in DATA with --annotations FILE",
        a.file);
  if (!a.results.empty()) check_writable(a.results);
  const engine::ModelInfo& info = model.info();
  const bool has_ids = a.annotations.ends_with(".json");  // VOC files have names only
  const auto dataset = std::make_shared<const data::DetectionDataset>(data::DetectionDatasetOptions{
      .images = a.data.path,
      .annotations = a.annotations,
      .skip_absent = a.skip_broken,
      .class_names = has_ids ? std::vector<std::string>{} : info.labels});
  const std::vector<int64_t> ids = category_ids(a, info, *dataset, has_ids);
  print_broken(dataset->absent());
  data::DetectionLoader loader(dataset, info.preprocess, std::nullopt, loader_options(a));
  engine::Context context;
  predict::DetectorEvaluation result;
  {
    Progress progress(loader.batches());
    result = predict::evaluate_detector(model, loader, *dataset, ids, context,
                                        tell_pictures(progress, a, dataset->size()));
  }
  print_broken(loader.broken());
  if (!a.results.empty()) coco::write_results(a.results, result.detections);
  nlohmann::json numbers = {{"pictures", result.pictures}};
  for (const coco::Measure& measure : coco::kMeasures) {
    const double value = coco::mean(result.numbers, measure);
    if (!a.as_json) fmt::print("{}\n", coco::summary_line(measure, value));
    numbers[measure.name] = value;
  }
  if (a.as_json) fmt::print("{}\n", numbers.dump());
}

void run_auto_encoder(const EvalArguments& a, const engine::Model& model) {
  std::shared_ptr<const data::Dataset> dataset =
      std::make_shared<data::PictureDataset>(a.data.path);
  check(a.last <= dataset->size(), "--last must be at most {}, as {} has, got {}", dataset->size(),
        a.data.path, a.last);
  if (a.last > 0 && a.last < dataset->size()) dataset = data::hold_back(dataset, a.last).val;
  data::Loader loader(dataset, model.info().preprocess, std::nullopt, {}, loader_options(a));
  engine::Context context;
  predict::Metrics metrics;
  {
    Progress progress(loader.batches());
    metrics = predict::metrics_of(
        predict::evaluate_auto_encoder(model, loader, model.info().preprocess, context,
                                       tell_pictures(progress, a, dataset->size())));
  }
  print_broken(loader.broken());
  nlohmann::json numbers = {{"pictures", dataset->size()}};
  if (!a.as_json) fmt::print("{}: {} pictures\n", a.data.path, dataset->size());
  for (const auto& [name, value] : metrics) {
    if (!a.as_json) fmt::print("  {:6} {:>8}\n", name, report::metric_text(value));
    numbers[name] = value;
  }
  if (a.as_json) fmt::print("{}\n", numbers.dump());
}

void run_classifier(const EvalArguments& a, const engine::Model& model) {
  const int64_t classes = model.classes();
  check(classes > 0, "{}: this model has no classes", a.file);
  const auto dataset = data::open_dataset(a.data);
  check(static_cast<int64_t>(dataset->classes().size()) == classes,
        "{}: the data must have the {} classes of the model, got {}", a.data.path, classes,
        dataset->classes().size());
  data::LoaderOptions options = loader_options(a);
  options.classes = classes;
  data::Loader loader(dataset, model.info().preprocess, std::nullopt, {}, options);
  engine::Context context;
  predict::Evaluation result;
  {
    Progress progress(loader.batches());
    result = predict::evaluate_classifier(model, loader, context,
                                          tell_pictures(progress, a, dataset->size()));
  }
  print_broken(loader.broken());
  if (a.as_json) {
    fmt::print("{}\n", nlohmann::json{{"pictures", result.pictures},
                                      {"top1", result.top1},
                                      {"top5", result.top5},
                                      {"loss", result.loss}}
                           .dump());
    return;
  }
  fmt::print("{}: {} pictures\n", a.data.path, result.pictures);
  fmt::print("  top-1  {:6.2f} %\n", result.top1);
  if (classes > 5) fmt::print("  top-5  {:6.2f} %\n", result.top5);
  fmt::print("  loss   {:7.4f}\n", result.loss);
}

}  // namespace

void add_eval(Command program) {
  Command verb =
      program.verb("eval", "Measure a classifier, a detector or an auto-encoder on pictures");
  auto a = std::make_shared<EvalArguments>();
  verb.option("file", a->file, "Weights (.safetensors)").required().type_name("FILE");
  verb.option("data", a->data.path,
              "Class folders, a tar of them, or idx files; of a\n"
              "detector or auto-encoder, the folder of pictures")
      .required()
      .type_name("DATA");
  verb.option("--split", a->data.split,
              "Folder inside DATA, or '' if the class folders lie directly in it [val]");
  verb.option("--annotations", a->annotations,
              "Objects to find: a COCO file, a folder of VOC files, or a VOC list (.txt)")
      .type_name("FILE");
  verb.option("--results", a->results, "File for a detector's detections, in COCO's format")
      .type_name("FILE");
  verb.option("--batch", a->batch, "Pictures that run together [64; detectors 4]").range(1, 4096);
  verb.option("--workers", a->workers, "Threads that read pictures [one per core]").range(1, 1024);
  verb.option("--last", a->last,
              "Only the last so many pictures, in order of their paths, for an\n"
              "auto-encoder [all]")
      .range(int64_t{1}, int64_t{1} << 40);
  verb.flag("--skip-broken", a->skip_broken, "Leave out pictures that cannot be read");
  verb.flag("--json", a->as_json, "One JSON object");
  verb.footer(
      "Resizing, cropping and normalisation are those kept in the weights file.\n\n"
      "Examples:\n"
      "  qna eval runs/imagenette/best.safetensors imagenette2\n"
      "  qna eval model.safetensors cifar10.tar.xz --split test --json\n"
      "  qna eval detr.safetensors val2017 --annotations instances_val2017.json\n"
      "  qna eval runs/faces_qna/best.safetensors celeba --last 1000");
  verb.callback([a] {
    const engine::Model model = engine::Model::open(a->file);
    const bool detector = model.kind() == engine::Kind::kDetector;
    const bool auto_encoder = model.kind() == engine::Kind::kAutoEncoder;
    check(detector || (a->annotations.empty() && a->results.empty()),
          "{}: this is no detector; --annotations and --results are for detectors", a->file);
    check(auto_encoder || a->last == 0, "{}: this is no auto-encoder; --last is for auto-encoders",
          a->file);
    if (a->batch == 0) a->batch = detector ? 4 : 64;
    (detector ? run_detector : auto_encoder ? run_auto_encoder : run_classifier)(*a, model);
  });
}

}  // namespace qna::cli
