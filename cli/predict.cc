#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/image_loop.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/image_stream.h"
#include "qna/predict/classify.h"

namespace qna::cli {
namespace {

using nlohmann::json;

struct PredictArguments {
  std::string file;  // weights
  std::string weight_type;
  std::vector<std::string> images;
  int64_t top = 5;
  bool as_json = false;
  BatchOptions batches;
};

using Answer = std::vector<predict::ClassProbability>;

void print_text(const std::string& path, const Answer& answer,
                const std::vector<std::string>& labels) {
  fmt::print("{}\n", path);
  for (const auto& [label, probability] : answer) {
    fmt::print("  {:6.2f} %  {}\n", 100 * probability, predict::class_name(label, labels));
  }
}

void print_line(const json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, json::error_handler_t::replace));
}

void print_json(const std::string& path, const Answer& answer,
                const std::vector<std::string>& labels) {
  json predictions = json::array();
  for (const auto& [label, probability] : answer) {
    json row = {{"class", label}, {"probability", probability}};
    if (!labels.empty()) row["label"] = labels[label];
    predictions.push_back(row);
  }
  print_line({{"image", path}, {"predictions", predictions}});
}

void run_predict(const PredictArguments& a) {
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  predict::check_has_classes(model);
  const std::vector<std::string> paths = find_pictures(a.images, /*standard_input=*/true);
  engine::Context context(a.batches.threads);

  const auto answer = [&](const ImageBatch& batch) {
    const std::vector<predict::Classes> classes = predict::classify(model, batch.images, context);
    for (size_t i = 0; i < classes.size(); ++i) {
      (a.as_json ? print_json : print_text)(batch.paths[i], classes[i].top(a.top),
                                            model.info().labels);
    }
    std::fflush(stdout);
  };
  const auto report = [&](const std::string& path, const std::string& message) {
    if (a.as_json) print_line({{"image", path}, {"error", message}});
    fmt::print(stderr, "qna: {}\n", message);
  };
  const int64_t failed = for_each_batch(paths, model.info().preprocess, a.batches, answer, report);
  check_all_used(failed, paths);
}

}  // namespace

void add_predict(Command program) {
  Command verb = program.verb("predict", "Say what is in pictures");
  auto a = std::make_shared<PredictArguments>();
  add_pictures(verb, a->images, config::Kind::kClassifier, /*standard_input=*/true);
  verb.option("--top", a->top, "How many classes to print [5]").range(1, 1 << 24);
  verb.flag("--json", a->as_json, "One JSON object per picture and line");
  verb.option("--batch", a->batches.batch, "Pictures that run together [8]").range(1, 4096);
  add_engine_options(verb, a->batches.threads, a->weight_type);
  verb.footer(
      "Resizing, cropping and normalisation are those kept in the weights file. A picture that\n"
      "cannot be read is reported and does not stop the rest; the exit status then is 1.\n\n"
      "Examples:\n"
      "  qna predict church.jpg\n"
      "  qna predict model.safetensors cat.jpg\n"
      "  curl -s https://example.org/cat.jpg | qna predict -\n"
      "  qna predict model.safetensors pictures/ --top 1 --json > answers.jsonl");
  verb.callback([a] {
    a->file = take_weights(a->images, config::Kind::kClassifier);
    run_predict(*a);
  });
}

}  // namespace qna::cli
