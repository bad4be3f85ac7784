#include "qna/engine/context.h"

#include <algorithm>
#include <thread>

#include "qna/engine/worker.h"

namespace qna::engine {

Context::State::State(int threads) : runtime(threads) {
  for (int i = 0; i < threads; ++i) own.push_back(std::make_unique<Own>());
}

Context::Context(int threads) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  state_ = std::make_unique<State>(threads > 0 ? threads : cores);
}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

int Context::threads() const { return state_->runtime.workers(); }

size_t Context::bytes() const {
  size_t sum = state_->arena.bytes() + state_->runtime.scratch_bytes();
  for (const auto& own : state_->own) sum += own->arena.bytes() + own->runtime.scratch_bytes();
  return sum;
}

Mask every_nth(Mask mask, int64_t batch, int64_t height, int64_t width, int64_t n, Scope& scope) {
  if (mask == nullptr || n == 1) return mask;
  const int64_t rows = (height + n - 1) / n, columns = (width + n - 1) / n;
  uint8_t* out = scope.bytes(batch * rows * columns);
  uint8_t* to = out;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t y = 0; y < rows; ++y)
      for (int64_t x = 0; x < columns; ++x) *to++ = mask[(b * height + y * n) * width + x * n];
  return out;
}

void zero_masked(const Map& x, Mask mask) {
  if (mask == nullptr) return;
  for (int64_t n = 0; n < x.rows(); ++n) {
    if (mask[n] == 0) std::fill_n(x.data + n * x.features, x.features, 0.0f);
  }
}

void add(float* y, const float* x, int64_t count, int64_t period, Runtime& runtime) {
  constexpr int64_t kChunk = 1 << 14;
  runtime.for_each((count + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    int64_t i = chunk * kChunk;
    const int64_t end = std::min(count, i + kChunk);
    while (i < end) {  // runs that do not wrap
      const int64_t begin = i % period;
      const int64_t run = std::min(end - i, period - begin);
      float* to = y + i;
      const float* from = x + begin;
      for (int64_t k = 0; k < run; ++k) to[k] += from[k];
      i += run;
    }
  });
}

}  // namespace qna::engine
