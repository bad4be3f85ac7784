// HaloNet: the queries of a block share the keys of the block and a halo around it.
//   out[i] = sum_j softmax_j(scale <q[i], k[j]> + bias[j - i]) v[j]
// Blocks begin at the top left; those at the edges hold what is left of the map, and what lies
// outside of it is no key. A block without keys gives 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

struct HaloAttentionArgs {
  int64_t batch, height, width, heads, head_dim;
  int64_t block_h, block_w, halo_h, halo_w;  // in pixels
  int64_t stride_h, stride_w;                // from query to query; divide the block
  const float* q;                            // [B, ceil(H / sh), ceil(W / sw), heads, dim]
  const float* k;                            // pixel n at k + n * k_stride: [heads, dim]
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  float scale;
  // [2 bh + 2 halo_h - sh, 2 bw + 2 halo_w - sw, heads], by key minus query, the smallest first
  const float* bias;
  const uint8_t* mask;  // [B, H, W], 0 is no key; or null
  float* out;           // like q
};

// One for all implementations: HaloNet is here for comparison.
void halo_attention(const HaloAttentionArgs& args, Runtime& runtime);

}  // namespace qna::kernels
