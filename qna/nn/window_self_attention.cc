#include "qna/nn/window_self_attention.h"

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/ops/geometry.h"
#include "qna/ops/self_attention.h"

namespace qna::nn {

namespace F = torch::nn::functional;

torch::Tensor resize_relative_bias(const torch::Tensor& table, std::array<int64_t, 2> window) {
  const std::vector<int64_t> size = {2 * window[0] - 1, 2 * window[1] - 1};
  if (table.size(0) == size[0] && table.size(1) == size[1]) return table;
  const auto options =
      F::InterpolateFuncOptions().size(size).mode(torch::kBicubic).align_corners(false);
  return F::interpolate(table.permute({2, 0, 1}).unsqueeze(0), options)
      .squeeze(0)
      .permute({1, 2, 0})
      .contiguous();
}

WindowSelfAttentionImpl::WindowSelfAttentionImpl(const WindowSelfAttentionOptions& options)
    : options_(options) {
  const auto& o = options_;
  check(o.features >= 1, "WindowSelfAttention: features must be at least 1, got {}", o.features);
  check(o.heads >= 1 && o.features % o.heads == 0,
        "WindowSelfAttention: heads must divide features ({}), got {}", o.features, o.heads);
  check(o.window[0] >= 1 && o.window[1] >= 1,
        "WindowSelfAttention: window must be at least 1 x 1, got {} x {}", o.window[0],
        o.window[1]);
  WindowSelfAttentionImpl::reset();
}

void WindowSelfAttentionImpl::reset() {
  const auto& o = options_;
  const auto linear = [](int64_t in, int64_t out) {
    return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
  };
  qkv = register_module("qkv", linear(o.features, 3 * o.features));
  proj = register_module("proj", linear(o.features, o.features));
  relative_bias = register_parameter(
      "relative_bias", torch::zeros({2 * o.window[0] - 1, 2 * o.window[1] - 1, o.heads}));
  lecun_normal_(qkv->weight, o.features);
  lecun_normal_(proj->weight, o.features);
}

std::array<int64_t, 2> WindowSelfAttentionImpl::window_on(int64_t height, int64_t width) const {
  if (options_.global) return {height, width};
  return {std::min(options_.window[0], height), std::min(options_.window[1], width)};
}

torch::Tensor WindowSelfAttentionImpl::bias_for(std::array<int64_t, 2> window) const {
  const torch::Tensor table =
      options_.global ? resize_relative_bias(relative_bias, window) : relative_bias;
  return table.flip({0, 1}).permute({2, 0, 1});  // query minus key -> key minus query
}

torch::Tensor WindowSelfAttentionImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check(x.dim() == 4 && x.size(3) == options_.features,
        "WindowSelfAttention: x must be [batch, height, width, {}], got {}", options_.features,
        ops::sizes_text(x.sizes()));
  check(!mask.defined() ||
            (mask.scalar_type() == torch::kBool && mask.sizes() == x.sizes().slice(0, 3)),
        "WindowSelfAttention: mask must be bool of {}, got {}",
        ops::sizes_text(x.sizes().slice(0, 3)),
        mask.defined() ? ops::sizes_text(mask.sizes()) : "");
  if (x.numel() == 0) return torch::empty_like(x);
  if (!mask.defined()) return attend(x, mask);
  const torch::Tensor map = zero_masked(x, mask);
  if (!options_.global) return attend(map, mask);
  const auto run = [this](const torch::Tensor& part, const torch::Tensor& keys) {
    return attend(part, keys);
  };
  return as_batch(on_each_image(map, mask, run), x.size(1), x.size(2));
}

torch::Tensor WindowSelfAttentionImpl::attend(const torch::Tensor& x, const torch::Tensor& mask) {
  const std::array<int64_t, 2> window = window_on(x.size(1), x.size(2));
  const torch::Tensor mixed =
      ops::self_attention(qkv->forward(x), options_.heads, window, bias_for(window),
                          mask.defined() ? std::make_optional(mask) : std::nullopt);
  return proj->forward(mixed);
}

void WindowSelfAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "qna::nn::WindowSelfAttention(" << options_.features << ", heads=" << options_.heads
         << ", window=";
  if (options_.global) {
    stream << "global)";
  } else {
    stream << options_.window[0] << "x" << options_.window[1] << ")";
  }
}

}  // namespace qna::nn
