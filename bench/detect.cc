#include "bench/detect.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <set>
#include <utility>

#include "bench/detect_step.h"
#include "bench/temporary_folder.h"
#include "cli/progress.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/config/detectors.h"
#include "qna/engine/model.h"
#include "qna/predict/detections.h"

namespace qna::bench {
namespace {

constexpr const char* kPeerModel = "detr_r50";

// Logits and boxes of the last decoder block: [B, queries, classes + 1 + 4].
torch::Tensor last_predictions(models::Detr& model, const torch::Tensor& images) {
  const models::DetrOutput output = model->forward(images);
  return torch::cat({output.logits[-1], output.boxes[-1]}, -1);
}

// Random weights as in training's first step, and what our detector makes of a random image.
void write_problem(const std::string& name, std::array<int64_t, 2> image,
                   const std::string& weights, const std::string& io) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  models::Detr model(config::find_detector(name).config);
  model->eval();
  // Statistics of an untrained network's maps would be near 0 and 1, and hide a mistake.
  for (auto& item : model->named_buffers()) {
    if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2);
    if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.2);
    if (item.key().ends_with("bn3.weight")) item.value().uniform_(0.1, 0.3);
  }
  const torch::Tensor x = torch::randn({1, image[0], image[1], 3});
  const torch::Tensor y = last_predictions(model, x).contiguous();
  const format::TensorView views[] = {checkpoint::view_of("x", x), checkpoint::view_of("y", y)};
  format::write_safetensors(io, views);
  checkpoint::ModelInfo info{.name = name};
  info.preprocess.crop = {0, 0};
  checkpoint::save_model(weights, model, info);
}

}  // namespace

std::vector<ModelResult> run_detect_bench(const DetectBenchOptions& options) {
  const TemporaryFolder folder;
  const auto weights_of = [&](const std::string& name) {
    return folder.file(name + ".safetensors");
  };
  const auto check_of = [&](const std::string& name) { return folder.file(name + "-io"); };
  std::set<std::string> needed(options.models.begin(), options.models.end());
  if (options.peer) needed.insert(kPeerModel);
  cli::Progress progress(static_cast<int64_t>(needed.size()));
  for (int64_t done = 0; const std::string& name : needed) {
    progress.show(done++, fmt::format("writing the weights of {}", name));
    write_problem(name, options.image, weights_of(name), check_of(name));
  }
  progress.wipe();

  std::vector<ModelResult> results;
  for (const std::string& pass : options.passes) {
    const bool train = pass == "train";
    std::vector<Runner> runners;
    const auto add = [&](const std::string& subject, const std::string& name,
                         std::vector<std::string> command) {
      for (const std::string& word :
           {std::string("--weights"), weights_of(name), std::string("--check"), check_of(name)}) {
        command.push_back(word);
      }
      runners.push_back({.result = {.subject = subject + "-" + pass,
                                    .model = name,
                                    .batch = train ? options.train_batch : 1,
                                    .image = options.image,
                                    .threads = options.threads},
                         .command = std::move(command)});
    };
    for (const std::string& name : options.models) {
      std::vector<std::string> ours = {options.program, "detect-worker"};
      if (train) ours.push_back("--train");
      add("qna", name, std::move(ours));
    }
    if (options.peer) {
      std::vector<std::string> python = python_peer(options.peers_folder, "worker.py");
      python.insert(python.end(), {"--subject", "detr-" + pass});
      add("detr", kPeerModel, std::move(python));
    }
    for (ModelResult& r : take_turns(runners, options.rounds, pass))
      results.push_back(std::move(r));
  }
  return results;
}

std::string detect_table(const std::vector<ModelResult>& results) {
  std::string out =
      fmt::format("{:<12} {:<15} {:>5} {:>9} {:>8} {:>15} {:>9} {:>10}\n", "subject", "model",
                  "batch", "image", "images/s", "(rounds)", "peak MB", "qna is");
  const auto peer_of = [&](const ModelResult& ours) -> const ModelResult* {
    const std::string name = "detr" + ours.subject.substr(ours.subject.find('-'));
    for (const ModelResult& r : results) {
      if (r.subject == name && r.error.empty()) return &r;
    }
    return nullptr;
  };
  for (const ModelResult& r : results) {
    out +=
        fmt::format("{:<12} {:<15} {:>5} {:>9} ", r.subject, r.model, r.batch, size_text(r.image));
    if (!r.error.empty()) {
      out += "failed: " + r.error + "\n";
      continue;
    }
    const ModelResult* peer = r.subject.starts_with("qna") ? peer_of(r) : nullptr;
    out += fmt::format("{:>8.3f} {:>15} {:>9.1f} {:>10}\n", r.images_per_second,
                       fmt::format("{:.3f} - {:.3f}", r.slowest, r.fastest),
                       static_cast<double>(r.peak_bytes) / 1e6,
                       peer == nullptr
                           ? ""
                           : fmt::format("{:.2f}x", r.images_per_second / peer->images_per_second));
  }
  return out;
}

namespace {

void train(const WorkerOptions& options) {
  const int64_t base_bytes = resident_bytes();
  models::Detr model = checkpoint::load_model<models::Detr>(options.weights).model;
  const torch::Tensor x = torch::randn({options.batch, options.height, options.width, 3});
  const auto difference = difference_from_check(
      options, [&](const torch::Tensor& images) { return last_predictions(model, images); });
  DetectStep step(model, options.batch);
  serve(base_bytes, difference, [&] { step.run(x); });
}

// Images to logits and boxes, as predict/ has them.
class Detector {
 public:
  explicit Detector(const WorkerOptions& options)
      : model_(engine::Model::open(options.weights)), context_(options.threads) {}

  // The tensors are good until the next call.
  std::pair<torch::Tensor, torch::Tensor> run(const torch::Tensor& images) {
    const int64_t queries = model_.detector().queries;
    logits_.resize_({images.size(0), queries, model_.classes() + 1});
    boxes_.resize_({images.size(0), queries, 4});
    model_.detect(
        {.batch = images.size(0),
         .height = images.size(1),
         .width = images.size(2),
         .pixels = images.const_data_ptr<float>()},
        {.logits = logits_.mutable_data_ptr<float>(), .boxes = boxes_.mutable_data_ptr<float>()},
        context_);
    return {logits_, boxes_};
  }

  std::vector<predict::Detections> detect(const torch::Tensor& images) {
    run(images);
    const std::vector<std::array<int64_t, 2>> sizes(images.size(0),
                                                    {images.size(1), images.size(2)});
    return predict::detections({.batch = images.size(0),
                                .queries = logits_.size(1),
                                .classes = model_.classes(),
                                .logits = logits_.const_data_ptr<float>(),
                                .boxes = boxes_.const_data_ptr<float>()},
                               sizes, {.threshold = 0.5});
  }

 private:
  const engine::Model model_;
  engine::Context context_;
  torch::Tensor logits_ = torch::empty({0});
  torch::Tensor boxes_ = torch::empty({0});
};

void detect(const WorkerOptions& options) {
  const int64_t base_bytes = resident_bytes();
  Detector detector(options);
  const torch::Tensor x = torch::randn({options.batch, options.height, options.width, 3});
  const auto difference = difference_from_check(options, [&](const torch::Tensor& images) {
    const auto [logits, boxes] = detector.run(images);
    return torch::cat({logits, boxes}, -1);
  });
  serve(base_bytes, difference, [&] { detector.detect(x); });
}

}  // namespace

void run_detect_worker(const WorkerOptions& options) {
  at::set_num_threads(options.threads);
  options.train ? train(options) : detect(options);
}

}  // namespace qna::bench
