// A map enlarged by a whole factor, as PyTorch's upsample_bilinear2d with align_corners=false: the
// pixels of both maps are areas that cover the same image, and the edge's pixels go on outside.
#pragma once

#include <cstdint>

#include "qna/base/runtime.h"

namespace qna::kernels {

struct BilinearArgs {
  int64_t batch, height, width, features;
  int64_t factor;
  const float* x;  // [B, H, W, features]
  float* y;        // [B, H factor, W factor, features]
};

void bilinear_reference(const BilinearArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void bilinear(const BilinearArgs& args, Runtime& runtime);

}  // namespace qna::kernels
