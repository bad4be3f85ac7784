// Self-attention in windows as an operator: its row of the sweep.
#include "qna/ops/window_self_attention.h"

#include "qna/ops/operator_sweep_testonly.h"

namespace qna::ops::testing {
namespace {

// A case's kernel is the window.
Arguments random_window_self_attention(const Case& c) {
  const auto [batch, height, width] = c.map;
  const auto [window_h, window_w] = c.geometry.kernel_size;
  const int64_t heads = c.widths.heads;
  return {{random_map("qkv", {batch, height, width, 3 * heads * c.widths.dim}),
           random_table("bias", {heads, 2 * window_h - 1, 2 * window_w - 1}, c.parts.bias),
           random_mask(c)}};
}

Function by_window_self_attention(decltype(window_self_attention)* form) {
  return [form](const Arguments& in, const Case& c) {
    return form(in["qkv"], c.widths.heads, c.geometry.kernel_size, in.optional("bias"),
                in.optional("mask"));
  };
}

// One query at a time, from the definition in kernels/window_self_attention.h. Differentiable.
at::Tensor define_window_self_attention(const Arguments& in, const Case& c) {
  const auto [batch, height, width] = c.map;
  const auto [window_h, window_w] = c.geometry.kernel_size;
  const int64_t heads = c.widths.heads, dim = c.widths.dim;
  const at::Tensor parts = in["qkv"].view({batch, height * width, 3, heads, dim});
  const at::Tensor& mask = in["mask"];
  std::vector<at::Tensor> pixels;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int64_t top = y / window_h * window_h, left = x / window_w * window_w;
        std::vector<int64_t> keys, offsets;
        for (int64_t ky = top; ky < std::min(height, top + window_h); ++ky)
          for (int64_t kx = left; kx < std::min(width, left + window_w); ++kx) {
            if (mask.defined() && !mask[b][ky][kx].item<bool>()) continue;
            keys.push_back(ky * width + kx);
            offsets.push_back((window_h - 1 + ky - y) * (2 * window_w - 1) + window_w - 1 + kx - x);
          }
        const at::Tensor seen = parts[b].index_select(0, torch::tensor(keys, at::kLong));
        OptionalTensor bias = in.optional("bias");
        if (bias) bias = bias->flatten(1).t().index_select(0, torch::tensor(offsets, at::kLong));
        const at::Tensor q = parts[b][y * width + x][0] / std::sqrt(static_cast<double>(dim));
        pixels.push_back(attend(q, seen.select(1, 1), seen.select(1, 2), bias));
      }
  return torch::stack(pixels).view({batch, height, width, heads * dim});
}

Case window_case(const char* what, std::array<int64_t, 3> map, int64_t heads, int64_t dim,
                 std::array<int64_t, 2> window, Parts parts = {}) {
  return {what, map, {.heads = heads, .dim = dim}, {.kernel_size = window}, parts};
}

Operator window_self_attention_operator() {
  return {
      .name = "window_self_attention",
      .cases = {window_case("windows that divide the map", {2, 4, 6}, 3, 4, {2, 3}),
                window_case("windows cut off at the edges", {2, 5, 7}, 2, 8, {3, 4}),
                window_case("masked", {3, 5, 4}, 2, 5, {3, 4}, {.mask = true}),
                window_case("no bias", {1, 4, 4}, 3, 3, {2, 2}, {.bias = false, .mask = true}),
                window_case("a map smaller than the window", {2, 3, 2}, 1, 8, {7, 7})},
      .large = {window_case("many windows", {3, 14, 14}, 4, 8, {7, 7}, {.mask = true})},
      .random = random_window_self_attention,
      .run = by_window_self_attention(window_self_attention),
      .composite = by_window_self_attention(window_self_attention_composite),
      .definition = define_window_self_attention,
      // Without a kernel for 16 bits every step rounds.
      .tolerances = {.output = 1e-5,
                     .gradient = 1e-5,
                     .second = 1e-4,
                     .autocast_output = 0.1,
                     .autocast_gradient = 0.1,
                     .half_output = 25,
                     .half_gradient = 25,
                     .half_inference = 25},
      .types_of_kernels = {at::kFloat},
      .mistaken = window_case("", {1, 4, 4}, 2, 4, {3, 3}, {.mask = true}),
      .mistakes = {{"heads",
                    [](Arguments&, Case& c) { c.widths.heads = 5; },
                    {"qkv", "5 heads", "[1, 4, 4, 24]"}},
                   {"window",
                    [](Arguments&, Case& c) {
                      c.geometry.kernel_size = std::array<int64_t, 2>{0, 2};
                    },
                    {"window", "0 x 2"}},
                   {"bias",
                    [](Arguments& in, Case&) { in["bias"] = in["bias"].narrow(2, 0, 4); },
                    {"bias", "at least 5", "[2, 5, 4]"}},
                   {"mask of floats",
                    [](Arguments& in, Case&) { in["mask"] = in["mask"].to(at::kFloat); },
                    {"mask", "bool"}}},
  };
}

INSTANTIATE_TEST_SUITE_P(WindowSelfAttention, OperatorSweep,
                         ::testing::Values(window_self_attention_operator()));

}  // namespace
}  // namespace qna::ops::testing
