#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/broken_image.h"
#include "qna/format/text.h"
#include "qna/kinds/kind.h"

namespace qna::cli {
namespace {

struct EvalArguments {
  std::string file;
  std::string split;
  std::string weight_type;
  kinds::EvaluateOptions options;
  bool as_json = false;
};

kinds::Measured measure(const EvalArguments& a) {
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  std::unique_ptr<Progress> progress;
  const kinds::EvaluateWatcher watcher{
      .images =
          [&](int64_t done, int64_t total) {
            if (!progress) progress = std::make_unique<Progress>(total);
            progress->show(done, "pictures");
          },
      .note = [](const std::string& line) { fmt::print(stderr, "note: {}\n", line); }};
  try {
    return kinds::row_of(model.kind()).evaluate(model, a.options, watcher);
  } catch (const data::BrokenImage& error) {
    fail("{}; --skip-broken leaves such pictures out", error.what());
  }
}

// A table of the classes: all of them, or of many the worst.
void print_classes(const kinds::Measured& measured) {
  constexpr size_t kMost = 30, kWorst = 10;
  std::vector<kinds::Measured::Class> rows = measured.classes;
  if (rows.size() < 2) return;
  const size_t all = rows.size();
  if (all > kMost) {
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return a.numbers.front().value < b.numbers.front().value;
    });
    rows.resize(kWorst);
    fmt::print("\n  the {} worst of {} classes; --json prints all\n", kWorst, all);
  } else {
    fmt::print("\n");
  }
  size_t width = 5;
  for (auto& row : rows) {
    row.name = format::printable(row.name);
    width = std::max(width, std::min<size_t>(row.name.size(), 40));
  }
  fmt::print("  {:{}}  {:>8}", "class", width, measured.counted);
  for (const auto& number : rows.front().numbers) fmt::print("  {:>9}", number.name);
  fmt::print("\n");
  for (const auto& row : rows) {
    fmt::print("  {:{}}  {:>8}", row.name, width, row.count);
    for (const auto& number : row.numbers) fmt::print("  {:>7.2f} %", number.value);
    fmt::print("\n");
  }
}

void run_eval(const EvalArguments& a) {
  const kinds::Measured measured = measure(a);
  for (const std::string& line : measured.broken) fmt::print(stderr, "left out: {}\n", line);
  if (a.as_json) {
    nlohmann::json numbers = {{"pictures", measured.images}};
    for (const auto& number : measured.numbers) numbers[number.name] = number.value;
    for (const auto& row : measured.classes) {
      nlohmann::json& line = numbers["classes"].emplace_back();
      line = {{"name", row.name}, {measured.counted, row.count}};
      for (const auto& number : row.numbers) line[number.name] = number.value;
    }
    fmt::print("{}\n", numbers.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{}: {} pictures\n", a.options.data, measured.images);
  for (const auto& number : measured.numbers) {
    if (!number.line.empty()) fmt::print("  {}\n", number.line);
  }
  print_classes(measured);
}

}  // namespace

void add_eval(Command program) {
  Command verb =
      program.verb("eval", "Measure a classifier, a detector or an auto-encoder on pictures");
  auto a = std::make_shared<EvalArguments>();
  kinds::EvaluateOptions& o = a->options;
  verb.option("file", a->file, "Weights (.safetensors)").required().type_name("FILE");
  verb.option("data", o.data,
              "Class folders, a tar of them, or idx files; of a\n"
              "detector or auto-encoder, the folder of pictures")
      .required()
      .type_name("DATA");
  const Option split =
      verb.option("--split", a->split,
                  "Folder inside DATA, or '' if the class folders lie directly in it [what\n"
                  "training held back with val_fraction, or else val]");
  verb.option("--annotations", o.annotations,
              "Objects to find: a COCO file, a folder of VOC files, or a VOC list (.txt)")
      .type_name("FILE");
  verb.option("--results", o.results, "File for a detector's detections, in COCO's format")
      .type_name("FILE");
  verb.option("--batch", o.batch, "Pictures that run together [64; detectors 4]").range(1, 4096);
  verb.option("--threads", o.threads, "Threads that compute [one per core]").range(1, 1024);
  verb.option("--workers", o.workers, "Threads that read pictures [as many]").range(1, 1024);
  verb.option("--last", o.last,
              "Only the last so many pictures, in order of their paths, for an\n"
              "auto-encoder [all]")
      .range(int64_t{1}, int64_t{1} << 40);
  verb.option("--shift", o.shifts,
              "For a classifier: also with the pictures moved by so many pixels, such as 1,2,4,8")
      .comma_separated()
      .type_name("PIXELS");
  verb.flag("--skip-broken", o.skip_broken, "Leave out pictures that cannot be read");
  verb.flag("--json", a->as_json, "One JSON object");
  add_weight_type(verb, a->weight_type);
  verb.footer(
      "Resizing, cropping and normalisation are those kept in the weights file. Classes are found\n"
      "by their names; DATA may have some of the model's only.\n\n"
      "Examples:\n"
      "  qna eval runs/imagenette/best.safetensors imagenette2\n"
      "  qna eval model.safetensors cifar10.tar.xz --split test --json\n"
      "  qna eval model.safetensors imagenette2 --shift 1,2,4,8\n"
      "  qna eval detr.safetensors val2017 --annotations instances_val2017.json\n"
      "  qna eval runs/faces_qna/best.safetensors celeba --last 1000");
  verb.callback([a, split] {
    if (split.given()) a->options.split = a->split;
    run_eval(*a);
  });
}

}  // namespace qna::cli
