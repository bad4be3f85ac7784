// What the layers that mix neighbours have in common, so that a block can hold any of them.
#pragma once

#include <torch/types.h>

#include <array>

#include "qna/config/layers.h"

namespace qna::nn {

using config::same_padding;

class Mixer {
 public:
  virtual ~Mixer() = default;

  // x [B, H, W, in_features] -> [B, ceil(H / stride), ceil(W / stride), out_features]. mask [B, H,
  // W] bool, true takes part; what is false counts as 0, whatever stands there.
  virtual torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) = 0;

  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  virtual std::array<int64_t, 2> kernel_size() const = 0;
  virtual std::array<int64_t, 2> stride() const = 0;
};

// Check at the door that the layers share: throws qna::Error that begins with `layer`.
void check_map(const torch::Tensor& x, int64_t features, const torch::Tensor& mask,
               const char* layer);
}  // namespace qna::nn
