#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace qna::bench {

// c [rows, columns] = a [rows, inner] times weight [columns, inner] transposed, by the product
// inside the kernels. The weights are packed here, not when it is called.
std::function<void()> own_product(const at::Tensor& a, const at::Tensor& weight,
                                  const at::Tensor& c);

}  // namespace qna::bench
