// Multi-head self-attention inside windows that tile the map, with a relative bias (as in Swin,
// shifted or not), or over the whole map.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <optional>

#include "qna/config/layers.h"
#include "qna/ops/window_self_attention_branch.h"

namespace qna::nn {

using config::AttentionMethod;
using config::WindowSelfAttentionOptions;

// Any height and width: the windows at the bottom and right edge hold what is left of the map. That
// is the same as padding the map and masking what was added. Over the whole map, and with a shift,
// an image that a mask cuts out of a larger map is attended to as it is alone.
class WindowSelfAttentionImpl : public torch::nn::Cloneable<WindowSelfAttentionImpl> {
 public:
  explicit WindowSelfAttentionImpl(const WindowSelfAttentionOptions& options);

  // x [B, H, W, features]; mask [B, H, W] bool, true takes part. What is false counts as 0,
  // whatever stands there, and is no key.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {});

  // What ops::window_self_attention_branch runs behind `norm`, for x of this size, or nothing if it
  // cannot: windows are shifted there, go image by image, or are LibTorch's.
  std::optional<ops::WindowSelfAttentionBranchParameters> parameters_for_branch(
      const torch::nn::LayerNormImpl& norm, const torch::Tensor& x,
      const torch::Tensor& mask) const;

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  const WindowSelfAttentionOptions& options() const { return options_; }

  torch::nn::Linear qkv{nullptr};   // rows: q, k, v, each [heads, dim]
  torch::nn::Linear proj{nullptr};  // both without bias
  torch::Tensor relative_bias;      // [2 wh - 1, 2 ww - 1, heads], indexed by query minus key

 private:
  // The windows on a map of this size.
  std::array<int64_t, 2> window_on(int64_t height, int64_t width) const;
  // How far they are shifted there.
  std::array<int64_t, 2> shift_on(int64_t height, int64_t width) const;
  // Whether an image that a mask cuts out of a larger map is attended to by itself.
  bool by_size() const { return options_.global || options_.shifted(); }
  // The table for these windows: [heads, 2 wh - 1, 2 ww - 1] or larger, indexed by key minus query.
  torch::Tensor bias_for(std::array<int64_t, 2> window) const;
  // What stands between the two products: qkv [B, H, W, 3 * features] -> [B, H, W, features].
  torch::Tensor mix(const torch::Tensor& qkv, const torch::Tensor& mask) const;
  torch::Tensor attend(const torch::Tensor& qkv, const torch::Tensor& mask) const;
  // The two methods, on a map with the shift it needs.
  torch::Tensor attend_fused(const torch::Tensor& qkv, const torch::Tensor& mask,
                             const torch::Tensor& bias, std::array<int64_t, 2> shift) const;
  torch::Tensor attend_sdpa(const torch::Tensor& qkv, const torch::Tensor& mask,
                            const torch::Tensor& bias, std::array<int64_t, 2> shift) const;
  WindowSelfAttentionOptions options_;
};

TORCH_MODULE(WindowSelfAttention);

// A relative table [2h - 1, 2w - 1, heads] resized bicubically for another window.
torch::Tensor resize_relative_bias(const torch::Tensor& table, std::array<int64_t, 2> window);

}  // namespace qna::nn
