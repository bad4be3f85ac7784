// What the references of the branches have in common, in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace qna::kernels {

struct Normalized {
  std::vector<double> n;
  double factor;  // 1 / sqrt(variance + epsilon)
};

template <typename T>
Normalized normalize(const T* x, int64_t features, double epsilon) {
  const auto count = static_cast<double>(features);
  double mean = 0;
  double variance = 0;
  for (int64_t c = 0; c < features; ++c) mean += x[c] / count;
  for (int64_t c = 0; c < features; ++c) variance += (x[c] - mean) * (x[c] - mean) / count;
  Normalized out{std::vector<double>(features), 1 / std::sqrt(variance + epsilon)};
  for (int64_t c = 0; c < features; ++c) out.n[c] = (x[c] - mean) * out.factor;
  return out;
}

// dx += the gradient through n, whose own gradient is dn.
inline void add_norm_gradient(std::vector<double>& dx, const std::vector<double>& dn,
                              const Normalized& norm) {
  const auto count = static_cast<double>(dn.size());
  double mean = 0;     // of dn
  double product = 0;  // of dn n
  for (size_t c = 0; c < dn.size(); ++c) {
    mean += dn[c] / count;
    product += dn[c] * norm.n[c] / count;
  }
  for (size_t c = 0; c < dn.size(); ++c) {
    dx[c] += norm.factor * (dn[c] - mean - norm.n[c] * product);
  }
}

template <typename T>
double factor_of(const T* drop_factor, int64_t sample) {
  return drop_factor == nullptr ? 1 : drop_factor[sample];
}

template <typename T>
void write_cells(T* to, const std::vector<double>& from) {
  for (const double value : from) *to++ = static_cast<T>(value);
}

}  // namespace qna::kernels
