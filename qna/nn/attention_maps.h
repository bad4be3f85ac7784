// Where a layer looks: its attention weights, which forward() never forms as a whole.
//
// Nothing here is differentiable. Memory grows with the map, not with the map times the window.
#pragma once

#include "qna/nn/qna.h"
#include "qna/nn/window_self_attention.h"

namespace qna::nn {

// p[l, h, t](i, j): the softmax over the taps t of window (i, j), for query l and head h.
// w[h, t](i, j) = sum over l of scale[l, h, t] p[l, h, t](i, j): what the values are summed with.

// The paper's first picture. What every window gives a location, summed over the windows that see
// it: map(y, x) = sum of p(i, j)[t] over all (i, j) and t with tap t of window (i, j) at (y, x).
// Over all locations the map of a query and head sums to the number of windows.
struct AttentionMaps {
  torch::Tensor attention;  // [B, L, heads, H, W], sums of p
  torch::Tensor weight;     // [B, heads, H, W], sums of |w|: signs would cancel between windows
};

// x [B, H, W, in]. The parameters and the geometry are those of ops::layer.
AttentionMaps attention_maps(const torch::Tensor& x, const ops::LayerParameters& parameters,
                             const ops::WindowGeometry& geometry);
AttentionMaps attention_maps(const QnA& layer, const torch::Tensor& x);

// The paper's second picture: the window's weights by themselves, 0 where a tap lies outside the
// map. Of every `every`-th window in both directions, from the first.
struct AttentionKernels {
  torch::Tensor attention;  // [B, L, heads, rows, columns, kh, kw], p
  torch::Tensor weight;     // [B, heads, rows, columns, kh, kw], w with its sign
};

AttentionKernels attention_kernels(const torch::Tensor& x, const ops::LayerParameters& parameters,
                                   const ops::WindowGeometry& geometry, int64_t every = 1);
AttentionKernels attention_kernels(const QnA& layer, const torch::Tensor& x, int64_t every = 1);

// Self-attention: what a location gets as a key, summed over the queries of its window:
// [B, heads, H, W]. Sums to the number of locations.
torch::Tensor attention_map(const WindowSelfAttention& layer, const torch::Tensor& x);

}  // namespace qna::nn
