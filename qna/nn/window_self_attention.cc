#include "qna/nn/window_self_attention.h"
#include <torch/nn/functional/upsampling.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/nn/attention_tiles.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/mixer.h"
#include "qna/nn/query_projection.h"
#include "qna/ops/window_self_attention.h"

namespace qna::nn {
namespace {

namespace F = torch::nn::functional;

constexpr const char* kWindowSelfAttentionName = "WindowSelfAttention";

struct Range {
  int64_t begin, size;
};

// What lies before the shift, if anything does, and what lies behind.
std::vector<Range> cut(int64_t size, int64_t shift) {
  if (shift == 0) return {{0, size}};
  return {{0, shift}, {shift, size - shift}};
}

torch::Tensor part(const torch::Tensor& map, const Range& rows, const Range& columns) {
  if (!map.defined()) return map;
  return map.narrow(1, rows.begin, rows.size).narrow(2, columns.begin, columns.size);
}

torch::Tensor join(const std::vector<torch::Tensor>& parts, int64_t axis) {
  return parts.size() == 1 ? parts.front() : torch::cat(parts, axis);
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
    : options_(config::complete(options)) {
  WindowSelfAttentionImpl::reset();
}

void WindowSelfAttentionImpl::reset() {
  const auto& o = options_;
  qkv = register_module("qkv", linear_without_bias(o.features, 3 * o.features));
  proj = register_module("proj", linear_without_bias(o.features, o.features));
  relative_bias = register_parameter(
      "relative_bias", torch::zeros({2 * o.window[0] - 1, 2 * o.window[1] - 1, o.heads}));
  lecun_normal_(qkv->weight, o.features);
  lecun_normal_(proj->weight, o.features);
}

std::array<int64_t, 2> WindowSelfAttentionImpl::window_on(int64_t height, int64_t width) const {
  if (options_.global) return {height, width};
  return {std::min(options_.window[0], height), std::min(options_.window[1], width)};
}

std::array<int64_t, 2> WindowSelfAttentionImpl::shift_on(int64_t height, int64_t width) const {
  return {height <= options_.window[0] ? 0 : options_.shift[0],
          width <= options_.window[1] ? 0 : options_.shift[1]};
}

torch::Tensor WindowSelfAttentionImpl::bias_for(std::array<int64_t, 2> window) const {
  const torch::Tensor table =
      options_.global ? resize_relative_bias(relative_bias, window) : relative_bias;
  return table.flip({0, 1}).permute({2, 0, 1});  // query minus key -> key minus query
}

std::optional<ops::WindowSelfAttentionBranchParameters>
WindowSelfAttentionImpl::parameters_for_branch(const torch::nn::LayerNormImpl& norm,
                                               const torch::Tensor& x,
                                               const torch::Tensor& mask) const {
  check_map(x, options_.features, mask, kWindowSelfAttentionName);
  const bool whole = options_.method == AttentionMethod::kFused &&
                     shift_on(x.size(1), x.size(2)) == std::array<int64_t, 2>{0, 0} &&
                     !(by_size() && mask.defined());
  if (!whole || x.numel() == 0) return std::nullopt;
  const std::array<int64_t, 2> window = window_on(x.size(1), x.size(2));
  return ops::WindowSelfAttentionBranchParameters{.norm_weight = norm.weight,
                                                  .norm_bias = norm.bias,
                                                  .qkv_weight = qkv->weight,
                                                  .proj_weight = proj->weight,
                                                  .bias = bias_for(window),
                                                  .heads = options_.heads,
                                                  .window = window,
                                                  .epsilon = norm.options.eps()};
}

torch::Tensor WindowSelfAttentionImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  check_map(x, options_.features, mask, kWindowSelfAttentionName);
  if (x.numel() == 0) return torch::empty_like(x);
  return proj->forward(mix(qkv->forward(zero_masked(x, mask)), mask));
}

torch::Tensor WindowSelfAttentionImpl::mix(const torch::Tensor& qkv,
                                           const torch::Tensor& mask) const {
  if (!by_size() || !mask.defined()) return attend(qkv, mask);
  const auto run = [&](const torch::Tensor& image, const torch::Tensor& keys) {
    return attend(image, keys);
  };
  return as_batch(on_each_image(qkv, mask, run), qkv.size(1), qkv.size(2));
}

torch::Tensor WindowSelfAttentionImpl::attend(const torch::Tensor& qkv,
                                              const torch::Tensor& mask) const {
  const torch::Tensor bias = bias_for(window_on(qkv.size(1), qkv.size(2)));
  const std::array<int64_t, 2> shift = shift_on(qkv.size(1), qkv.size(2));
  return options_.method == AttentionMethod::kFused ? attend_fused(qkv, mask, bias, shift)
                                                    : attend_sdpa(qkv, mask, bias, shift);
}

// The kernel's windows begin at the map's corner: those before the shift are maps of their own.
torch::Tensor WindowSelfAttentionImpl::attend_fused(const torch::Tensor& qkv,
                                                    const torch::Tensor& mask,
                                                    const torch::Tensor& bias,
                                                    std::array<int64_t, 2> shift) const {
  const std::array<int64_t, 2> window = window_on(qkv.size(1), qkv.size(2));
  std::vector<torch::Tensor> bands;
  for (const Range& rows : cut(qkv.size(1), shift[0])) {
    std::vector<torch::Tensor> parts;
    for (const Range& columns : cut(qkv.size(2), shift[1])) {
      const torch::Tensor keys = part(mask, rows, columns);
      parts.push_back(
          ops::window_self_attention(part(qkv, rows, columns), options_.heads, window, bias,
                                     keys.defined() ? std::make_optional(keys) : std::nullopt));
    }
    bands.push_back(join(parts, 2));
  }
  return join(bands, 1);
}

torch::Tensor WindowSelfAttentionImpl::attend_sdpa(const torch::Tensor& qkv,
                                                   const torch::Tensor& mask,
                                                   const torch::Tensor& bias,
                                                   std::array<int64_t, 2> shift) const {
  const int64_t dim = options_.features / options_.heads;
  const std::array<int64_t, 2> window = window_on(qkv.size(1), qkv.size(2));
  const auto parts = qkv.unflatten(3, {3, options_.heads, dim}).unbind(3);
  TileAttention tiles{
      .geometry = {}, .bias = bias, .bias_center = {bias.size(1) / 2, bias.size(2) / 2}};
  for (int axis = 0; axis < 2; ++axis) {
    tiles.geometry[axis] = {.block = window[axis], .shift = shift[axis]};
  }
  return attend_tiles(parts[0] / std::sqrt(static_cast<double>(dim)), parts[1], parts[2], mask,
                      tiles)
      .flatten(3);
}

void WindowSelfAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "qna::nn::WindowSelfAttention(" << options_.features << ", heads=" << options_.heads
         << ", window=";
  if (options_.global) {
    stream << "global)";
  } else {
    stream << options_.window[0] << "x" << options_.window[1];
    if (options_.shifted()) {
      stream << ", shift=" << options_.shift[0] << "x" << options_.shift[1];
    }
    stream << ")";
  }
}

}  // namespace qna::nn
