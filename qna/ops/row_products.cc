#include "qna/ops/row_products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <functional>

namespace qna::ops {
namespace {

// Enough chunks for many threads, each large enough for the library to be at full speed.
int64_t chunk_rows(int64_t rows) {
  const int64_t sixteenth = (rows + 15) / 16;
  return std::clamp<int64_t>((sixteenth + 63) / 64 * 64, 64, 2048);
}

int64_t chunk_count(int64_t rows) { return (rows + chunk_rows(rows) - 1) / chunk_rows(rows); }

// run(chunk, first row, rows)
void each_chunk(int64_t rows, const std::function<void(int64_t, int64_t, int64_t)>& run) {
  const int64_t step = chunk_rows(rows);
  at::parallel_for(0, chunk_count(rows), 1, [&](int64_t begin, int64_t end) {
    // Pool threads do not inherit the caller's guards.
    at::NoGradGuard no_grad;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * step;
      run(chunk, first, std::min(step, rows - first));
    }
  });
}

}  // namespace

at::Tensor rows_times(const at::Tensor& a, const at::Tensor& b,
                      const std::optional<at::Tensor>& bias) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  each_chunk(a.size(0), [&](int64_t, int64_t first, int64_t rows) {
    at::Tensor part = out.narrow(0, first, rows);
    if (bias.has_value()) {
      at::addmm_out(part, *bias, a.narrow(0, first, rows), b);
    } else {
      at::mm_out(part, a.narrow(0, first, rows), b);
    }
  });
  return out;
}

at::Tensor transposed_times(const at::Tensor& a, const at::Tensor& b) {
  const int64_t chunks = chunk_count(a.size(0));
  at::Tensor parts = at::empty({chunks, a.size(1), b.size(1)}, a.options());
  each_chunk(a.size(0), [&](int64_t chunk, int64_t first, int64_t rows) {
    at::Tensor part = parts.select(0, chunk);
    at::mm_out(part, a.narrow(0, first, rows).t(), b.narrow(0, first, rows));
  });
  at::Tensor sum = at::zeros({a.size(1), b.size(1)}, a.options());
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum.add_(parts.select(0, chunk));
  return sum;
}

at::Tensor sum_rows(const at::Tensor& a) {
  return transposed_times(at::ones({a.size(0), 1}, a.options()), a).squeeze(0);
}

}  // namespace qna::ops
