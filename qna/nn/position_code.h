// Where a position of a map lies in its image, as a vector to add to its features: DETR's two
// codes.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include "qna/config/layers.h"

namespace qna::nn {

using config::PositionKind;
using config::SineOptions;

class PositionCodeImpl : public torch::nn::Cloneable<PositionCodeImpl> {
 public:
  // features: of the map; a multiple of 4 (of 2 for learned codes).
  PositionCodeImpl(PositionKind kind, int64_t features, const SineOptions& sines = {});

  // For x [B, H, W, features] and its mask [B, H, W] bool, true where the image is: the code,
  // [B, H, W, features], or [1, ...] where it is the same for all images. What lies outside an
  // image does not change the code inside.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});
  // The sine code of any places, [..., 2] (x and y from 0 to 1) -> [..., features].
  torch::Tensor at(const torch::Tensor& places) const;
  void reset() override;

  torch::nn::Embedding row_embed{nullptr};  // learned only, [50, features / 2]
  torch::nn::Embedding col_embed{nullptr};

 private:
  torch::Tensor forward_sine(const torch::Tensor& x, const torch::Tensor& mask) const;
  torch::Tensor forward_learned(const torch::Tensor& x);
  torch::Tensor waves(const torch::Tensor& places) const;
  PositionKind kind_;
  int64_t features_;
  SineOptions sines_;
};

TORCH_MODULE(PositionCode);

}  // namespace qna::nn
