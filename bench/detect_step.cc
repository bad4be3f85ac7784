#include "bench/detect_step.h"

namespace qna::bench {
namespace {

constexpr double kLearningRate = 1e-4;
constexpr double kClip = 0.1;
constexpr int64_t kObjects = 8;  // per image

std::vector<tasks::BoxTargets> random_targets(int64_t batch, int64_t classes) {
  std::vector<tasks::BoxTargets> targets;
  for (int64_t i = 0; i < batch; ++i) {
    const torch::Tensor centres = 0.2 + 0.6 * torch::rand({kObjects, 2});
    const torch::Tensor sizes = 0.05 + 0.35 * torch::rand({kObjects, 2});
    targets.push_back({.labels = torch::randint(classes, {kObjects}, torch::kLong),
                       .boxes = torch::cat({centres, sizes}, 1)});
  }
  return targets;
}

models::Detr prepared(models::Detr model) {
  if (model->backbone().resnet) model->backbone().resnet->freeze_first_stage();
  model->train();
  return model;
}

}  // namespace

DetectStep::DetectStep(models::Detr model, int64_t batch)
    : model_(prepared(std::move(model))),
      targets_(random_targets(batch, model_->config().classes)),
      optimizer_(*model_, {.lr = kLearningRate,
                           .weight_decay = 1e-4,
                           .groups = {{.match = "backbone.*", .lr_scale = 0.1}}}) {}

void DetectStep::run(const torch::Tensor& images) {
  optimizer_.zero_grad();
  const models::DetrOutput output = model_->forward(images);
  tasks::set_loss(output.logits, output.boxes, targets_).total.backward();
  const double norm = optimizer_.gradient_norm();
  optimizer_.step(kLearningRate, norm > kClip ? kClip / norm : 1);
}

}  // namespace qna::bench
