// Problems for the tests of qna::window_attention: one table, from which all of them draw.
#pragma once

#include <functional>

#include <torch/utils.h>
#include "qna/ops/composite.h"
#include "qna/ops/tensors_testonly.h"
#include "qna/ops/window_attention.h"

namespace qna::ops::testing {

// What a call has besides scores and values.
struct WindowParts {
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
  bool separate = false;
};

struct WindowCase {
  const char* what;
  std::array<int64_t, 3> map;  // batch, height, width
  int64_t queries, heads, dim;
  WindowGeometry geometry;
  WindowParts parts = {};
};

inline const std::vector<WindowCase>& window_cases() {
  static const std::vector<WindowCase> cases = {
      {"usual", {2, 6, 7}, 2, 4, 3, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"separate", {2, 5, 4}, 4, 2, 3, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, {.separate = true}},
      {"masked", {2, 6, 7}, 2, 3, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, {.mask = true}},
      {"masked, separate",
       {1, 6, 5},
       3,
       2,
       2,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       {.mask = true, .separate = true}},
      {"no tables",
       {1, 5, 6},
       3,
       2,
       4,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       {.bias = false, .tap_weights = false}},
      {"no bias", {1, 5, 6}, 1, 5, 1, {{3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}}, {.bias = false}},
      {"no tap weights",
       {1, 5, 6},
       2,
       1,
       5,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       {.tap_weights = false}},
      {"even, rectangular", {1, 7, 8}, 2, 3, 2, {{2, 4}, {1, 1}, {0, 1, 1, 2}, {1, 1}}},
      {"strided", {2, 9, 8}, 2, 2, 3, {{3, 3}, {2, 3}, {1, 1, 1, 1}, {1, 1}}},
      {"dilated", {1, 9, 10}, 2, 2, 3, {{3, 2}, {1, 1}, {2, 2, 1, 2}, {2, 3}}},
      {"one-sided padding", {1, 5, 5}, 2, 2, 2, {{3, 3}, {1, 2}, {2, 0, 0, 1}, {1, 1}}},
      {"window larger than the map", {1, 2, 3}, 2, 2, 2, {{7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}}},
      {"windows in the padding",
       {1, 3, 2},
       2,
       2,
       2,
       {{3, 3}, {2, 1}, {5, 4, 4, 5}, {1, 1}},
       {.mask = true}},
      {"one pixel", {3, 1, 1}, 2, 3, 2, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {"one row", {1, 1, 9}, 2, 2, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"no image", {0, 4, 4}, 2, 2, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
  };
  return cases;
}

// The arguments of one call. Gradients by call(): out, then scores, values, bias, tap_weights.
struct WindowInputs {
  at::Tensor scores, values;
  OptionalTensor bias, tap_weights, mask;

  static WindowInputs random(const WindowCase& c, uint64_t seed = 1) {
    torch::manual_seed(seed);
    const auto [batch, height, width] = c.map;
    const std::vector<int64_t> table = {c.geometry.kernel_size[0], c.geometry.kernel_size[1],
                                        c.queries, c.heads};
    WindowInputs in;
    in.scores = torch::randn({batch, height, width, c.queries, c.heads}, at::kDouble) * 2;
    in.values = torch::randn({batch, height, width, c.heads, c.dim}, at::kDouble);
    const at::Tensor bias = torch::randn(table, at::kDouble);
    const at::Tensor tap_weights = torch::randn(table, at::kDouble);
    if (c.parts.bias) in.bias = bias;
    if (c.parts.tap_weights) in.tap_weights = tap_weights;
    if (c.parts.mask) in.mask = torch::rand({batch, height, width}) < 0.7;
    // Values that float32 holds, so that every dtype starts from the same numbers.
    return in.as(at::kFloat, false).as(at::kDouble, false);
  }

  WindowInputs as(at::ScalarType type, bool requires_grad = true) const {
    return {leaf(scores, type, requires_grad), leaf(values, type, requires_grad),
            leaf(bias, type, requires_grad), leaf(tap_weights, type, requires_grad), mask};
  }

  std::vector<at::Tensor> tensors() const {
    return {scores, values, bias.value_or(at::Tensor()), tap_weights.value_or(at::Tensor())};
  }
  std::vector<at::Tensor> given() const {
    std::vector<at::Tensor> list;
    for (const at::Tensor& tensor : tensors()) {
      if (tensor.defined()) list.push_back(tensor);
    }
    return list;
  }
};

using WindowFunction = std::function<at::Tensor(const WindowInputs&, const WindowCase&)>;

inline at::Tensor run_op(const WindowInputs& in, const WindowCase& c) {
  return window_attention(in.scores, in.values, in.bias, in.tap_weights, in.mask, c.geometry,
                          c.parts.separate);
}
inline kernels::WindowShape shape_of(const WindowInputs& in, const WindowCase& c) {
  return window_attention_shape(in.scores, in.values, in.bias, in.tap_weights, in.mask, c.geometry,
                                c.parts.separate);
}
inline at::Tensor run_composite(const WindowInputs& in, const WindowCase& c) {
  return window_attention_composite(in.scores, in.values, in.bias, in.tap_weights, in.mask,
                                    shape_of(in, c));
}
inline at::Tensor run_gather(const WindowInputs& in, const WindowCase& c) {
  return window_attention_gather(in.scores, in.values, in.bias, in.tap_weights, in.mask,
                                 shape_of(in, c));
}

// Numbers that every dtype holds, so that they are the same in all.
inline at::Tensor random_like(const at::Tensor& tensor, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(tensor.sizes()).to(at::kBFloat16).to(tensor.scalar_type());
}

// Output and gradients of `function` on leaves of the given dtype.
inline std::vector<at::Tensor> with_gradients(const WindowFunction& function,
                                              const WindowInputs& inputs, const WindowCase& c,
                                              at::ScalarType type) {
  const WindowInputs in = inputs.as(type);
  const at::Tensor out = function(in, c);
  out.backward(random_like(out, 7));
  std::vector<at::Tensor> results = {out.detach()};
  for (const at::Tensor& tensor : in.given()) results.push_back(tensor.grad());
  return results;
}

}  // namespace qna::ops::testing
