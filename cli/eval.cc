#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/progress.h"
#include "qna/coco/summary.h"
#include "qna/data/open_dataset.h"
#include "qna/tasks/classification.h"
#include "qna/tasks/detection.h"

namespace qna::cli {
namespace {

struct Arguments {
  std::string file;
  data::DatasetOptions data{.path = "", .split = "val"};
  int64_t batch = 0;  // 0: 64, of a detector 4
  int workers = 0;
  bool skip_broken = false;
  bool as_json = false;
  // Of a detector:
  std::string annotations;
  std::string results;  // file for the detections; empty: none
};

int workers_of(const Arguments& a) { return a.workers > 0 ? a.workers : at::get_num_threads(); }

void print_broken(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print(stderr, "left out: {}\n", line);
}

void run_detector(const Arguments& a) {
  check(!a.annotations.empty(),
        "{}: this is a detector; give the objects of the pictures in DATA with --annotations FILE",
        a.file);
  checkpoint::LoadedDetector loaded = checkpoint::load_detector(a.file);
  const auto dataset = std::make_shared<const data::DetectionDataset>(data::DetectionDatasetOptions{
      .images = a.data.path, .annotations = a.annotations, .skip_absent = a.skip_broken});
  check(!loaded.info.category_ids.empty(), "{}: the file does not say the ids of its classes",
        a.file);
  print_broken(dataset->absent());
  data::DetectionLoader loader(dataset, loaded.info.preprocess, std::nullopt,
                               {.batch = a.batch,
                                .workers = workers_of(a),
                                .shuffle = false,
                                .skip_broken = a.skip_broken,
                                .cache_bytes = 0});
  tasks::DetectorEvaluation result;
  {
    Progress progress(loader.batches());
    result = tasks::evaluate_detector(
        loaded.model, loader, *dataset, loaded.info.category_ids, {},
        {.threads = at::get_num_threads()}, [&](int64_t done, int64_t) {
          progress.show(done,
                        fmt::format("{} pictures", std::min(done * a.batch, dataset->size())));
        });
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

void run_classifier(const Arguments& a) {
  check(a.annotations.empty() && a.results.empty(),
        "{}: this is no detector; --annotations and --results are for detectors", a.file);
  checkpoint::LoadedModel loaded = open_weights(a.file);
  check(static_cast<bool>(loaded.model->head), "{}: this model has no classes", a.file);
  const auto dataset = data::open_dataset(a.data);
  const int64_t classes = loaded.model->config().classes;
  check(static_cast<int64_t>(dataset->classes().size()) == classes,
        "{}: the data must have the {} classes of the model, got {}", a.data.path, classes,
        dataset->classes().size());
  data::Loader loader(dataset, loaded.info.preprocess, std::nullopt, {},
                      {.batch = a.batch,
                       .workers = workers_of(a),
                       .shuffle = false,
                       .skip_broken = a.skip_broken,
                       .cache_bytes = 0,
                       .classes = classes});
  tasks::Evaluation result;
  {
    Progress progress(loader.batches());
    result = tasks::evaluate(loaded.model, loader, {}, [&](int64_t done, int64_t) {
      progress.show(done, fmt::format("{} pictures", std::min(done * a.batch, dataset->size())));
    });
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

void add_eval(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("eval", "Measure a model on labelled pictures, or a detector on boxes");
  auto a = std::make_shared<Arguments>();
  verb->add_option("file", a->file, "Weights (.safetensors)")->required()->type_name("FILE");
  verb->add_option("data", a->data.path,
                   "Class folders, a tar of them, or idx files; of a\n"
                   "detector, the folder of pictures")
      ->required()
      ->type_name("DATA");
  verb->add_option("--split", a->data.split,
                   "Folder inside DATA, or '' if the class folders lie directly in it [val]");
  verb->add_option("--annotations", a->annotations,
                   "Objects to find: a COCO file, a folder of VOC files, or a VOC list (.txt)")
      ->type_name("FILE");
  verb->add_option("--results", a->results, "File for a detector's detections, in COCO's format")
      ->type_name("FILE");
  verb->add_option("--batch", a->batch, "Pictures that run together [64; detectors 4]")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  verb->add_option("--workers", a->workers, "Threads that read pictures [one per core]")
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--skip-broken", a->skip_broken, "Leave out pictures that cannot be read");
  verb->add_flag("--json", a->as_json, "One JSON object");
  verb->footer(
      "Resizing, cropping and normalisation are those kept in the weights file.\n\n"
      "Examples:\n"
      "  qna eval runs/imagenette/best.safetensors imagenette2\n"
      "  qna eval model.safetensors cifar10.tar.xz --split test --json\n"
      "  qna eval detr.safetensors val2017 --annotations instances_val2017.json");
  verb->callback([a] {
    const bool detector = checkpoint::is_detector_file(a->file);
    if (a->batch == 0) a->batch = detector ? 4 : 64;
    (detector ? run_detector : run_classifier)(*a);
  });
}

}  // namespace qna::cli
