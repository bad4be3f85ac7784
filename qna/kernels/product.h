// c [rows, columns] = a [rows, inner] * b [inner, columns] by the matrix product inside the fused
// layer. Here so that it can be tested and measured on its own.
#pragma once

#include "qna/base/runtime.h"

namespace qna::kernels {

struct ProductArgs {
  int64_t rows;
  int64_t inner;
  int64_t columns;
  const float* a;
  const float* b;
  float* c;
};

void product_reference(const ProductArgs& args, Runtime& runtime);

// By the implementation that is chosen or forced (see implementation.h).
void product(const ProductArgs& args, Runtime& runtime);

}  // namespace qna::kernels
