#include "bench/worker.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "bench/train_step.h"
#include "qna/checkpoint/model_file.h"
#include "qna/engine/model.h"

namespace qna::bench {
namespace {

void train(const WorkerOptions& options) {
  const int64_t base_bytes = resident_bytes();
  models::QnAViT model = checkpoint::load_model<models::QnAViT>(options.weights).model;
  const torch::Tensor x =
      torch::randn({options.batch, options.height, options.width, model->config().in_channels});
  const auto difference = difference_from_check(
      options, [&](const torch::Tensor& images) { return model->forward(images); });
  TrainStep step(model);
  serve(base_bytes, difference, [&] { step.run(x); });
}

void predict_by_modules(const WorkerOptions& options) {
  const c10::InferenceMode inference;
  const int64_t base_bytes = resident_bytes();
  models::QnAViT model = checkpoint::load_model<models::QnAViT>(options.weights).model;
  model->eval();
  const torch::Tensor x =
      torch::randn({options.batch, options.height, options.width, model->config().in_channels});
  const auto difference = difference_from_check(
      options, [&](const torch::Tensor& images) { return model->forward(images); });
  serve(base_bytes, difference, [&] { model->forward(x); });
}

void predict(const WorkerOptions& options) {
  const int64_t base_bytes = resident_bytes();
  const engine::Model model = engine::Model::open(
      options.weights, {.weight_type = options.bfloat16 ? engine::WeightType::kBFloat16
                                                        : engine::WeightType::kFloat32});
  engine::Context context(options.threads);
  const auto classify = [&](const torch::Tensor& images, const torch::Tensor& logits) {
    model.classify({.batch = images.size(0),
                    .height = images.size(1),
                    .width = images.size(2),
                    .pixels = images.const_data_ptr<float>()},
                   logits.mutable_data_ptr<float>(), context);
  };
  const torch::Tensor x =
      torch::randn({options.batch, options.height, options.width, model.channels()});
  const torch::Tensor y = torch::empty({options.batch, model.classes()});
  const auto difference = difference_from_check(options, [&](const torch::Tensor& images) {
    const torch::Tensor logits = torch::empty({images.size(0), model.classes()});
    classify(images, logits);
    return logits;
  });
  serve(base_bytes, difference, [&] { classify(x, y); });
}

}  // namespace

void run_worker(const WorkerOptions& options) {
  at::set_num_threads(options.threads);
  options.train ? train(options) : options.modules ? predict_by_modules(options) : predict(options);
}

}  // namespace qna::bench
