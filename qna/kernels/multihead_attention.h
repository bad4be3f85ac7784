// Attention between two sequences, after its first and before its last product:
//   out[i] = sum_j softmax_j(scale <q[i], k[j]>) v[j]    per image and head
// A masked key takes no part, whatever it holds. An image without keys gives 0.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

struct MultiheadAttentionArgs {
  int64_t batch, queries, keys, heads, head_dim;
  // Row (b, n) is at q + (b * queries + n) * q_stride, [heads, dim]; those of k and v likewise.
  const float* q;
  int64_t q_stride;
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  float scale;
  const uint8_t* mask = nullptr;  // [B, keys], 0 is no key; or null
  float* out;                     // [B, queries, heads, dim]
  float* weights = nullptr;       // [B, queries, keys]: the weights' mean over the heads; or null
};

void multihead_attention_reference(const MultiheadAttentionArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void multihead_attention(const MultiheadAttentionArgs& args, Runtime& runtime);

}  // namespace qna::kernels
