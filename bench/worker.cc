#include "bench/worker.h"

#include <torch/types.h>

#include <optional>

#include "bench/train_step.h"
#include "qna/checkpoint/model_file.h"

namespace qna::bench {

void run_worker(const WorkerOptions& options) {
  at::set_num_threads(options.threads);
  const c10::InferenceMode inference(!options.train);
  const int64_t base_bytes = resident_bytes();
  models::QnAViT model = checkpoint::load_model(options.weights).model;
  const torch::Tensor x =
      torch::randn({options.batch, options.height, options.width, model->config().in_channels});
  const auto difference = difference_from_check(
      options, [&](const torch::Tensor& images) { return model->forward(images); });
  std::optional<TrainStep> train_step;
  if (options.train) train_step.emplace(model);
  serve(base_bytes, difference, [&] {
    if (options.train) {
      train_step->run(x);
    } else {
      model->forward(x);
    }
  });
}

}  // namespace qna::bench
