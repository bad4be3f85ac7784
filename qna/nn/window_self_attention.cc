#include "qna/nn/window_self_attention.h"

#include <cmath>
#include <limits>

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/ops/geometry.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;

// [B, H, W, ...] -> [B * windows, tokens, ...] for a map that the window divides.
torch::Tensor split(const torch::Tensor& x, std::array<int64_t, 2> window) {
  const int64_t rows = x.size(1) / window[0];
  const int64_t columns = x.size(2) / window[1];
  std::vector<int64_t> sizes = {x.size(0), rows, window[0], columns, window[1]};
  const auto rest = x.sizes().slice(3);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  std::vector<int64_t> merged = {x.size(0) * rows * columns, window[0] * window[1]};
  merged.insert(merged.end(), rest.begin(), rest.end());
  return x.reshape(sizes).transpose(2, 3).reshape(merged);
}

// [B * windows, tokens, C] -> [B, H, W, C]
torch::Tensor merge(const torch::Tensor& x, int64_t batch, int64_t height, int64_t width,
                    std::array<int64_t, 2> window) {
  return x.reshape({batch, height / window[0], width / window[1], window[0], window[1], x.size(-1)})
      .transpose(2, 3)
      .reshape({batch, height, width, x.size(-1)});
}

// Where the table, flattened to [(2h - 1) (2w - 1), heads], holds key minus query: [N, N].
torch::Tensor table_index(std::array<int64_t, 2> window, const torch::Tensor& table) {
  const auto options = torch::TensorOptions(torch::kLong).device(table.device());
  const int64_t table_w = table.size(2);
  const auto coordinate = [&](int64_t size, bool is_row) {
    const torch::Tensor range = torch::arange(size, options);
    return (is_row ? range.view({-1, 1}) : range.view({1, -1}))
        .expand({window[0], window[1]})
        .reshape({-1});
  };
  const torch::Tensor y = coordinate(window[0], true);
  const torch::Tensor x = coordinate(window[1], false);
  const torch::Tensor dy = y.view({1, -1}) - y.view({-1, 1}) + table.size(1) / 2;
  const torch::Tensor dx = x.view({1, -1}) - x.view({-1, 1}) + table_w / 2;
  return dy * table_w + dx;
}

}  // namespace

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
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t heads = options_.heads;
  const int64_t dim = options_.features / heads;
  const std::array<int64_t, 2> window = window_on(height, width);
  const int64_t tokens = window[0] * window[1];

  // Padded at the bottom and right to whole windows; what is added is masked.
  const int64_t bottom = (window[0] - height % window[0]) % window[0];
  const int64_t right = (window[1] - width % window[1]) % window[1];
  const bool padded = bottom > 0 || right > 0;
  torch::Tensor map = x;
  torch::Tensor keys = mask;
  if (padded) {
    map = F::pad(x, F::PadFuncOptions({0, 0, 0, right, 0, bottom}));
    if (!keys.defined()) {
      keys = torch::ones({batch, height, width}, x.options().dtype(torch::kBool));
    }
    keys = F::pad(keys, F::PadFuncOptions({0, right, 0, bottom}));
  }

  const torch::Tensor parts =
      qkv->forward(split(map, window))
          .view({-1, tokens, 3, heads, dim})
          .permute({2, 0, 3, 1, 4});  // [3, B * windows, heads, tokens, dim]
  const torch::Tensor q = parts[0] * (1 / std::sqrt(static_cast<double>(dim)));
  const torch::Tensor table = bias_for(window);  // [heads, rows, columns]
  const torch::Tensor bias = table.reshape({heads, -1})
                                 .index_select(1, table_index(window, table).view({-1}))
                                 .view({heads, tokens, tokens});
  torch::Tensor scores = torch::matmul(q, parts[1].transpose(-2, -1)) + bias;
  torch::Tensor weights;
  if (keys.defined()) {
    // The smallest number, not -inf: a window without keys would give NaN, in the gradient too.
    const torch::Tensor taking_part = split(keys, window).view({-1, 1, 1, tokens});
    const double lowest = scores.scalar_type() == torch::kHalf ? -65504.0 : -3.0e38;
    weights = scores.masked_fill(~taking_part, lowest).softmax(-1) * taking_part;
  } else {
    weights = scores.softmax(-1);
  }
  const torch::Tensor mixed = torch::matmul(weights, parts[2])  // [B * windows, heads, tokens, dim]
                                  .transpose(1, 2)
                                  .reshape({-1, tokens, options_.features});
  torch::Tensor y = merge(proj->forward(mixed), batch, height + bottom, width + right, window);
  if (padded) y = y.slice(1, 0, height).slice(2, 0, width);
  return y;
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
