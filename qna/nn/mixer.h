// What the layers that mix neighbours have in common, so that a block can hold any of them.
#pragma once

#include <torch/types.h>

#include <array>
#include <optional>

namespace qna::nn {

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

// Checks at the door that the layers share; all throw qna::Error that begins with `layer`.
void check_map(const torch::Tensor& x, int64_t features, const torch::Tensor& mask,
               const char* layer);
void check_heads(int64_t heads, int64_t features, const char* layer);
void check_at_least_one(std::array<int64_t, 2> values, const char* name, const char* layer);

// top, bottom, left, right: half the window, so that stride 1 keeps the size. An even window gets
// its extra row and column at the bottom and right.
std::array<int64_t, 4> same_padding(std::array<int64_t, 2> kernel_size,
                                    std::array<int64_t, 2> dilation = {1, 1});

}  // namespace qna::nn
