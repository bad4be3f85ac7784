// What the operators' tests share: comparison of tensors, gradients, and who is to blame.
#pragma once

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "qna/base/error.h"
#include "qna/kernels/implementation.h"
#include "qna/ops/geometry.h"
#include "tests/support/complaint.h"

namespace qna::ops::testing {

// Largest difference, as a part of the largest expected element (at least `least`).
inline ::testing::AssertionResult near(const at::Tensor& actual, const at::Tensor& expected,
                                       double tolerance, double least = 1e-30) {
  if (!actual.defined() || !expected.defined()) {
    if (actual.defined() == expected.defined()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << (actual.defined() ? "expected" : "actual") << " is undefined";
  }
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure()
           << "shape " << actual.sizes() << ", not " << expected.sizes();
  }
  if (actual.numel() == 0) return ::testing::AssertionSuccess();
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor e = expected.detach().to(at::kDouble);
  const double scale = std::max(least, e.abs().max().item<double>());
  const double error = (a - e).abs().max().item<double>();
  if (error <= tolerance * scale) return ::testing::AssertionSuccess();  // false for NaN
  return ::testing::AssertionFailure() << "differs by " << error << " where the largest is "
                                       << scale << ", allowed " << tolerance << " of it";
}

// The same bits; undefined equals undefined.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

// A leaf of its own in another dtype.
inline at::Tensor leaf(const at::Tensor& tensor, at::ScalarType type, bool requires_grad = true) {
  return tensor.detach().to(type).clone().requires_grad_(requires_grad);
}

using qna::testing::complaint;
using qna::testing::expect_complaint;

// What a complaint must name, from a table of mistakes.
inline void expect_words(const std::string& said, const std::vector<const char*>& words) {
  for (const char* word : words) {
    EXPECT_TRUE(qna::testing::contains(said, word)) << "no '" << word << "' in: " << said;
  }
}

// Ends with no implementation forced.
struct ForcedImplementation {
  explicit ForcedImplementation(std::string_view name) { kernels::force_implementation(name); }
  ~ForcedImplementation() { kernels::force_implementation(""); }
};

inline std::vector<std::string> supported_implementations() {
  std::vector<std::string> names;
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (implementation.supported) names.push_back(implementation.name);
  }
  return names;
}

// One thread unless a test says otherwise: the maps are tiny, and on a busy machine threads that
// wait for each other take most of the time.
class OneThread : public ::testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};

struct ThreadCount {
  explicit ThreadCount(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before); }
  int before;
};

struct Autocast {
  explicit Autocast(at::ScalarType type)
      : enabled(at::autocast::is_autocast_enabled(at::kCPU)),
        before(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, type);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, before);
    at::autocast::clear_cache();
  }
  bool enabled;
  at::ScalarType before;
};

}  // namespace qna::ops::testing
