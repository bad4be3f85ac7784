#include "qna/train/ema.h"

#include <algorithm>

#include <torch/utils.h>

namespace qna::train {

Ema::Ema(const torch::nn::Module& model, double decay, bool warm_up)
    : decay_(decay), warm_up_(warm_up) {
  if (!on()) return;
  for (const auto& item : model.named_parameters()) {
    names_.push_back(item.key());
    weights_.push_back(item.value());
    means_.push_back(item.value().detach().clone());
  }
}

double Ema::decay_at(int64_t step) const {
  if (!warm_up_) return decay_;
  const auto done = static_cast<double>(step);
  return std::min(decay_, (1 + done) / (10 + done));
}

torch::Tensor Ema::mean_of(const torch::Tensor& parameter) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].is_same(parameter)) return means_[i];
  }
  return {};
}

void Ema::swap() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < means_.size(); ++i) {
    const torch::Tensor kept = weights_[i].detach().clone();
    weights_[i].copy_(means_[i]);
    means_[i].copy_(kept);
  }
}

checkpoint::NamedTensors Ema::tensors() const {
  checkpoint::NamedTensors out;
  for (size_t i = 0; i < names_.size(); ++i) out.emplace_back(names_[i], means_[i]);
  return out;
}

}  // namespace qna::train
