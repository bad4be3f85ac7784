// Matrix products over many rows (pixels), cut into chunks that depend on the shape alone and run
// one per thread: the same bits for any number of threads, which LibTorch alone does not promise.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace qna::ops {

// a [rows, inner] * b [inner, columns] (+ bias [columns])
at::Tensor rows_times(const at::Tensor& a, const at::Tensor& b,
                      const std::optional<at::Tensor>& bias = std::nullopt);

// a [rows, m] transposed * b [rows, n] -> [m, n]: a sum over all rows.
at::Tensor transposed_times(const at::Tensor& a, const at::Tensor& b);

// Sum of a [rows, columns] over the rows -> [columns].
at::Tensor sum_rows(const at::Tensor& a);

}  // namespace qna::ops
