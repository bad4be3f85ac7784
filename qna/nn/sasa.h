// Stand-alone self-attention ("Stand-Alone Self-Attention in Vision Models", NeurIPS 2019): every
// pixel has a query, made from its own features, and attends to the window around it.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/nn/mixer.h"
#include "qna/ops/sasa.h"

namespace qna::nn {

using config::SasaMethod;
using config::SasaOptions;

class SasaImpl : public torch::nn::Cloneable<SasaImpl>, public Mixer {
 public:
  explicit SasaImpl(const SasaOptions& options);

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) override;

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  const SasaOptions& options() const { return options_; }
  const ops::WindowGeometry& geometry() const { return geometry_; }
  int64_t in_features() const override { return options_.in_features; }
  int64_t out_features() const override { return options_.out_features; }
  std::array<int64_t, 2> kernel_size() const override { return options_.kernel_size; }
  std::array<int64_t, 2> stride() const override { return options_.stride; }

  torch::nn::Linear qkv{nullptr};   // rows: q, k, v, each [heads, dim]
  torch::nn::Linear proj{nullptr};  // both without bias
  torch::Tensor relative_bias;      // [kh, kw, heads], or undefined

 private:
  torch::Tensor window_centers(const torch::Tensor& x) const;
  SasaOptions options_;  // with all defaults filled in
  ops::WindowGeometry geometry_;
};

TORCH_MODULE(Sasa);

}  // namespace qna::nn
