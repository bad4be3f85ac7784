// What a kernel computed, by name, and how near two such results are.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "qna/base/error.h"
#include "qna/base/half.h"

namespace qna::kernels::testing {

// |actual - expected| <= absolute + relative |expected| + by_scale max(1, largest |expected|).
// By scale: sums over windows cancel, so their error is measured by the largest element, at least 1
// (the inputs are of order 1).
struct Tolerance {
  double absolute = 0;
  double relative = 0;
  double by_scale = 0;
};

// To what a T can hold; null where that is all of float32.
using Rounding = double (*)(double);
template <typename T>
constexpr Rounding rounding_to() {
  if constexpr (sizeof(T) >= sizeof(float)) return nullptr;
  return [](double value) -> double { return to_float(from_double<T>(value)); };
}

// One output of a kernel, in the plain order of its dimensions whatever layout it was written in.
struct Part {
  const char* name;
  std::vector<double> cells;
  Rounding rounded = nullptr;
  Tolerance tolerance = {};
};

// All outputs of a kernel, and the working memory it took where the test looks at that.
struct Results {
  Results(const Tolerance& tolerance, std::vector<Part> parts_in, size_t scratch_bytes_in = 0)
      : parts(std::move(parts_in)), scratch_bytes(scratch_bytes_in) {
    for (Part& part : parts) part.tolerance = tolerance;
  }
  const std::vector<double>& operator[](std::string_view name) const {
    for (const Part& part : parts) {
      if (name == part.name) return part.cells;
    }
    fail("test: there is no output '{}'", name);
  }
  // Of the first output, often the only one.
  const std::vector<double>& cells() const { return parts.front().cells; }

  std::vector<Part> parts;
  size_t scratch_bytes;
};

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  return most;
}

// NaN and infinities must be at the same places. 16 bits must be the rounding of some number within
// the tolerance: rounding is monotonic, so they lie between those of the two ends.
inline ::testing::AssertionResult near(const std::vector<double>& actual,
                                       const std::vector<double>& expected,
                                       const Tolerance& tolerance, Rounding rounded = nullptr) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
  }
  const double any = tolerance.absolute + tolerance.by_scale * std::max(1.0, largest(expected));
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i];
    const double e = expected[i];
    if (std::isnan(e) ? std::isnan(a) : a == e) continue;
    const double allowed = any + tolerance.relative * std::abs(e);
    if (std::isfinite(e) &&
        (rounded == nullptr ? std::abs(a - e) <= allowed
                            : rounded(e - allowed) <= a && a <= rounded(e + allowed))) {
      continue;
    }
    return ::testing::AssertionFailure() << "element " << i << " of " << actual.size() << " is "
                                         << a << ", not " << e << "; allowed " << allowed;
  }
  return ::testing::AssertionSuccess();
}

inline void expect_near(const Results& actual, const Results& expected) {
  for (const Part& part : actual.parts) {
    EXPECT_TRUE(near(part.cells, expected[part.name], part.tolerance, part.rounded)) << part.name;
  }
}

inline ::testing::AssertionResult same_bits(const std::vector<double>& actual,
                                            const std::vector<double>& expected) {
  const size_t size = std::min(actual.size(), expected.size());
  for (size_t i = 0; i < size; ++i) {
    if (actual[i] == expected[i]) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << size << " is " << actual[i] << ", not " << expected[i];
  }
  if (actual.size() == expected.size()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
}

inline ::testing::AssertionResult same_bits(const Results& actual, const Results& expected) {
  for (const Part& part : actual.parts) {
    ::testing::AssertionResult same = same_bits(part.cells, expected[part.name]);
    if (!same) return same << " (" << part.name << ")";
  }
  return ::testing::AssertionSuccess();
}

inline int64_t count_nan(const std::vector<double>& values) {
  return std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

}  // namespace qna::kernels::testing
