#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/image_batches.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/image_stream.h"

namespace qna::cli {
namespace {

using nlohmann::json;

struct Arguments {
  std::string file;  // weights
  std::vector<std::string> images;
  int64_t top = 5;
  bool as_json = false;
  BatchOptions batches;
};

void print_text(const std::string& path, const torch::Tensor& values, const torch::Tensor& classes,
                const std::vector<std::string>& labels) {
  fmt::print("{}\n", path);
  for (int64_t i = 0; i < values.size(0); ++i) {
    const int64_t index = classes[i].item<int64_t>();
    fmt::print("  {:6.2f} %  {}\n", 100 * values[i].item<double>(),
               labels.empty() ? fmt::format("class {}", index) : labels[index]);
  }
}

void print_json(const std::string& path, const torch::Tensor& values, const torch::Tensor& classes,
                const std::vector<std::string>& labels) {
  json predictions = json::array();
  for (int64_t i = 0; i < values.size(0); ++i) {
    const int64_t index = classes[i].item<int64_t>();
    json row = {{"class", index}, {"probability", values[i].item<double>()}};
    if (!labels.empty()) row["label"] = labels[index];
    predictions.push_back(row);
  }
  fmt::print("{}\n", json{{"image", path}, {"predictions", predictions}}.dump(
                         -1, ' ', false, json::error_handler_t::replace));
}

void run(const Arguments& a) {
  const torch::InferenceMode inference;
  checkpoint::LoadedModel loaded = open_weights(a.file);
  check(static_cast<bool>(loaded.model->head), "{}: this model has no classes to predict", a.file);
  const std::vector<std::string> paths = data::find_images(a.images);
  const int64_t top = std::min(a.top, loaded.model->config().classes);

  const auto predict = [&](const ImageBatch& batch) {
    const torch::Tensor features = loaded.model->forward_features(batch.images);
    const torch::Tensor logits = loaded.model->forward_head(features);  // [B, classes]
    const auto [values, classes] = logits.softmax(-1).topk(top);
    for (size_t i = 0; i < batch.paths.size(); ++i) {
      const auto n = static_cast<int64_t>(i);
      (a.as_json ? print_json : print_text)(batch.paths[i], values[n], classes[n],
                                            loaded.info.labels);
    }
    std::fflush(stdout);
  };
  const auto report = [&](const std::string& path, const std::string& message) {
    if (a.as_json) {
      fmt::print("{}\n", json{{"image", path}, {"error", message}}.dump(
                             -1, ' ', false, json::error_handler_t::replace));
    }
    fmt::print(stderr, "qna: {}\n", message);
  };
  const int64_t failed = for_each_batch(paths, loaded.info.preprocess, a.batches, predict, report);
  check(failed == 0, "{} of {} pictures could not be read", failed, paths.size());
}

}  // namespace

void add_predict(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("predict", "Say what is in pictures");
  auto a = std::make_shared<Arguments>();
  verb->add_option("images", a->images,
                   "Pictures, or folders of them (JPEG, PNG); before them a weights file\n"
                   "(.safetensors) [the small classifier that comes with the program]")
      ->required()
      ->type_name("[FILE] IMAGE");
  verb->add_option("--top", a->top, "How many classes to print [5]")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_flag("--json", a->as_json, "One JSON object per picture and line");
  verb->add_option("--batch", a->batches.batch, "Pictures that run together [8]")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  verb->add_option("--threads", a->batches.threads, "Threads that decode pictures [one per core]")
      ->check(CLI::Range(1, 1024));
  verb->footer(
      "Resizing, cropping and normalisation are those kept in the weights file. A picture that\n"
      "cannot be read is reported and does not stop the rest; the exit status then is 1.\n\n"
      "Examples:\n"
      "  qna predict church.jpg\n"
      "  qna predict model.safetensors cat.jpg\n"
      "  qna predict model.safetensors photos/ --top 1 --json > answers.jsonl");
  verb->callback([a] {
    a->file = take_weights(a->images);
    run(*a);
  });
}

}  // namespace qna::cli
