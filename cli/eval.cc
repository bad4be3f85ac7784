#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "cli/verbs.h"
#include "qna/kinds/kind.h"

namespace qna::cli {
namespace {

struct EvalArguments {
  std::string file;
  kinds::EvaluateOptions options;
  bool as_json = false;
};

kinds::Measured measure(const EvalArguments& a) {
  const engine::Model model = engine::Model::open(a.file);
  std::unique_ptr<Progress> progress;
  const kinds::EvaluateWatcher watcher{
      .images =
          [&](int64_t done, int64_t total) {
            if (!progress) progress = std::make_unique<Progress>(total);
            progress->show(done, "pictures");
          },
      .note = [](const std::string& line) { fmt::print(stderr, "note: {}\n", line); }};
  return kinds::row_of(model.kind()).evaluate(model, a.options, watcher);
}

void run_eval(const EvalArguments& a) {
  const kinds::Measured measured = measure(a);
  for (const std::string& line : measured.broken) fmt::print(stderr, "left out: {}\n", line);
  if (a.as_json) {
    nlohmann::json numbers = {{"pictures", measured.images}};
    for (const auto& number : measured.numbers) numbers[number.name] = number.value;
    fmt::print("{}\n", numbers.dump());
    return;
  }
  fmt::print("{}: {} pictures\n", a.options.data, measured.images);
  for (const auto& number : measured.numbers) {
    if (!number.line.empty()) fmt::print("  {}\n", number.line);
  }
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
  verb.option("--split", o.split,
              "Folder inside DATA, or '' if the class folders lie directly in it [val]");
  verb.option("--annotations", o.annotations,
              "Objects to find: a COCO file, a folder of VOC files, or a VOC list (.txt)")
      .type_name("FILE");
  verb.option("--results", o.results, "File for a detector's detections, in COCO's format")
      .type_name("FILE");
  verb.option("--batch", o.batch, "Pictures that run together [64; detectors 4]").range(1, 4096);
  verb.option("--workers", o.workers, "Threads that read pictures [one per core]").range(1, 1024);
  verb.option("--last", o.last,
              "Only the last so many pictures, in order of their paths, for an\n"
              "auto-encoder [all]")
      .range(int64_t{1}, int64_t{1} << 40);
  verb.flag("--skip-broken", o.skip_broken, "Leave out pictures that cannot be read");
  verb.flag("--json", a->as_json, "One JSON object");
  verb.footer(
      "Resizing, cropping and normalisation are those kept in the weights file.\n\n"
      "Examples:\n"
      "  qna eval runs/imagenette/best.safetensors imagenette2\n"
      "  qna eval model.safetensors cifar10.tar.xz --split test --json\n"
      "  qna eval detr.safetensors val2017 --annotations instances_val2017.json\n"
      "  qna eval runs/faces_qna/best.safetensors celeba --last 1000");
  verb.callback([a] { run_eval(*a); });
}

}  // namespace qna::cli
