#include "qna/base/random.h"

#include <cmath>
#include <numbers>

#include "qna/base/error.h"

namespace qna {

// Each step is one to one, so two keys that differ in one number never start at the same state.
Random::Random(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t purpose) : state_(seed) {
  for (const uint64_t value : {epoch, index, purpose}) state_ = split_mix(state_) + value;
  state_ = split_mix(state_);
}

uint64_t Random::next() { return split_mix(state_); }

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::uniform(double low, double high) {
  const double value = low + (high - low) * uniform();
  return value < high ? value : low;  // the sum may round up to `high`
}

int64_t Random::below(int64_t count) {
  check(count >= 1, "Random: count must be at least 1, got {}", count);
  const uint64_t n = static_cast<uint64_t>(count);
  // Numbers from the incomplete round at the end of 2^64 would make small results likelier.
  const uint64_t incomplete = (UINT64_MAX % n + 1) % n;
  uint64_t bits = next();
  while (bits > UINT64_MAX - incomplete) bits = next();
  return static_cast<int64_t>(bits % n);
}

bool Random::chance(double probability) { return uniform() < probability; }

// Box and Muller 1958: two normal numbers out of two uniform ones.
std::array<double, 2> Random::normal_pair() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // the logarithm's range is (0, 1]
  const double angle = 2 * std::numbers::pi * uniform();
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double Random::normal() { return normal_pair()[0]; }

void Random::normals(float* out, int64_t count) {
  for (int64_t i = 0; i < count; i += 2) {
    const auto [first, second] = normal_pair();
    out[i] = static_cast<float>(first);
    if (i + 1 < count) out[i + 1] = static_cast<float>(second);
  }
}

// Marsaglia and Tsang 2000, for any shape above 0.
double Random::gamma(double shape) {
  if (shape < 1) {
    const double larger = gamma(shape + 1);
    return larger * std::pow(1 - uniform(), 1 / shape);
  }
  const double d = shape - 1. / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

double Random::beta(double alpha) {
  check(std::isfinite(alpha) && alpha > 0, "Random: alpha must be finite and above 0, got {}",
        alpha);
  const double a = gamma(alpha);
  const double b = gamma(alpha);
  // A tiny alpha gives numbers next to 0 or next to 1, and both gammas may be too small to hold.
  return a + b > 0 ? a / (a + b) : static_cast<double>(chance(0.5));
}

}  // namespace qna
