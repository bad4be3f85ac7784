// The parts that costs are added up from: what cost.cc and detr_cost.cc share.
#pragma once

#include "qna/config/cost.h"

namespace qna::config::cost_parts {

inline int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

inline constexpr double kNormFlops = 8;
inline constexpr double kActivationFlops = 10;
inline constexpr double kSoftmaxFlops = 5;

struct Map {
  int64_t height, width;
  int64_t count() const { return height * width; }
  Map half() const { return {up(height, 2), up(width, 2)}; }
};

inline void add_norm(Cost& c, double elements, int64_t features) {
  c.parameters += 2 * features;
  c.flops += kNormFlops * elements;
}

inline void add_product(Cost& c, double rows, int64_t in, int64_t out, bool bias) {
  c.parameters += in * out + (bias ? out : 0);
  c.flops += rows * (2.0 * in * out + (bias ? out : 0));
}

inline int64_t scale_parameters(AttentionScale scale, int64_t taps, int64_t scores) {
  switch (scale) {
    case AttentionScale::kPerTap:
    case AttentionScale::kOnes:
      return taps * scores;
    case AttentionScale::kPerQuery:
      return scores;
    default:
      return 0;
  }
}

inline void add_qna(Cost& c, AttentionScale scale, const Map& in, const Map& out,
                    int64_t in_features, int64_t features, int64_t heads, int64_t queries,
                    int64_t taps) {
  const int64_t scores = queries * heads;
  const double pixels = static_cast<double>(in.count());
  const double windows = static_cast<double>(out.count());
  c.parameters += queries * features + in_features * features + taps * scores +
                  scale_parameters(scale, taps, scores);
  c.flops += 2.0 * queries * in_features * features;       // Wk q
  c.flops += pixels * (2.0 * in_features + 1) * scores;    // scores and their exponentials
  add_product(c, pixels, in_features, features, false);    // values
  c.flops += pixels * queries * features;                  // exp(score) v
  c.flops += windows * taps * 2.0 * (queries * features);  // window sums
  c.flops += windows * (taps * 2.0 * scores + 2.0 * queries * features);  // their divisors
  add_product(c, windows, features, features, false);
}

}  // namespace qna::config::cost_parts
