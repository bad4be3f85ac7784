#include "qna/nn/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"

namespace qna::nn {
namespace {

constexpr int64_t kPerDraw = 4;  // decisions of 16 bits in 64
constexpr double kSteps = 65536;

uint64_t draw_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// The finalizer of SplitMix64: neighbouring numbers become unrelated ones.
uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// What each number is multiplied by: 0, or what keeps the expected value.
torch::Tensor factors(const torch::Tensor& x, double rate) {
  const torch::Tensor out = torch::empty(x.sizes(), torch::kFloat);
  const int64_t count = out.numel();
  const auto limit = static_cast<uint64_t>(std::llround(rate * kSteps));
  const auto kept = static_cast<float>(kSteps / std::max(1.0, kSteps - static_cast<double>(limit)));
  const uint64_t seed = draw_seed();
  float* to = out.data_ptr<float>();
  at::parallel_for(0, (count + kPerDraw - 1) / kPerDraw, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = scramble(seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull);
      const int64_t n = std::min(kPerDraw, count - i * kPerDraw);
      for (int64_t j = 0; j < n; ++j) {
        to[i * kPerDraw + j] = (bits >> (16 * j) & 0xffff) < limit ? 0 : kept;
      }
    }
  });
  return out.to(x.scalar_type());
}

}  // namespace

torch::Tensor dropout(const torch::Tensor& x, double rate, bool training) {
  check(rate >= 0 && rate < 1, "dropout: rate must be at least 0 and below 1, got {}", rate);
  if (!training || rate == 0) return x;
  if (!x.is_cpu()) return at::dropout(x, rate, true);
  return x * factors(x, rate);
}

}  // namespace qna::nn
