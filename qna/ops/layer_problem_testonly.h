// Problems for the tests of qna::layer: one table, from which all of them draw.
#pragma once

#include <functional>

#include <torch/utils.h>
#include "qna/ops/composite.h"
#include "qna/ops/layer.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::ops::testing {

// What a call has besides x and the three weights.
struct LayerParts {
  bool value_bias = false;
  bool out_bias = false;
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
};

struct LayerCase {
  const char* what;
  std::array<int64_t, 4> map;  // batch, height, width, features in
  int64_t queries, heads, dim, out_features;
  WindowGeometry geometry = {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  int64_t upsample = 1;
  LayerParts parts = {};
};

inline const std::vector<LayerCase>& layer_cases() {
  static const std::vector<LayerCase> cases = {
      {"usual", {2, 6, 7, 8}, 2, 4, 3, 10},
      {"all parts",
       {2, 6, 7, 5},
       3,
       3,
       2,
       7,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       1,
       {.value_bias = true, .out_bias = true, .mask = true}},
      {"no parts",
       {1, 5, 9, 4},
       2,
       2,
       4,
       8,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       1,
       {.bias = false, .tap_weights = false}},
      {"down-sampling",
       {2, 9, 11, 6},
       2,
       4,
       3,
       12,
       {{3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
       1,
       {.out_bias = true}},
      {"even, rectangular, dilated",
       {1, 8, 9, 3},
       1,
       5,
       1,
       2,
       {{2, 4}, {1, 3}, {1, 2, 0, 5}, {3, 2}},
       1,
       {.value_bias = true}},
      {"up-sampling by 2",
       {2, 4, 5, 6},
       4,
       3,
       4,
       5,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       2,
       {.value_bias = true, .out_bias = true, .tap_weights = false}},
      {"up-sampling by 3, all parts",
       {1, 4, 3, 6},
       9,
       2,
       3,
       4,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       3,
       {.value_bias = true, .out_bias = true, .mask = true}},
      {"window larger than the map",
       {1, 2, 3, 4},
       2,
       2,
       2,
       4,
       {{7, 5}, {1, 1}, {3, 3, 2, 2}, {1, 1}}},
      {"windows in the padding",
       {1, 2, 2, 4},
       2,
       2,
       2,
       4,
       {{3, 3}, {1, 1}, {4, 3, 5, 3}, {1, 1}},
       1,
       {.value_bias = true, .mask = true}},
      {"one pixel", {1, 1, 1, 1}, 1, 1, 1, 1, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {"no image",
       {0, 4, 5, 6},
       2,
       2,
       3,
       4,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       1,
       {.value_bias = true, .out_bias = true}},
      {"no image, up-sampling",
       {0, 4, 5, 6},
       4,
       2,
       3,
       4,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       2},
  };
  return cases;
}

struct LayerInputs {
  at::Tensor x;
  LayerParameters p;
  OptionalTensor mask;

  static LayerInputs random(const LayerCase& c, uint64_t seed = 1) {
    torch::manual_seed(seed);
    const auto [batch, height, width, in_features] = c.map;
    const std::vector<int64_t> table = {c.geometry.kernel_size[0], c.geometry.kernel_size[1],
                                        c.queries, c.heads};
    const auto normal = [](at::IntArrayRef sizes, double fan_in = 1) {
      return torch::randn(sizes, at::kDouble) / std::sqrt(fan_in);
    };
    const auto optional = [&](bool wanted, at::IntArrayRef sizes) {
      const at::Tensor tensor = normal(sizes);
      return wanted ? OptionalTensor(tensor) : std::nullopt;
    };
    LayerInputs in;
    in.x = normal(c.map);
    in.p.score_weight = normal({in_features, c.queries, c.heads}, in_features);
    in.p.value_weight = normal({in_features, c.heads, c.dim}, in_features);
    in.p.out_weight = normal({c.heads, c.dim, c.out_features}, c.heads * c.dim);
    in.p.value_bias = optional(c.parts.value_bias, {c.heads, c.dim});
    in.p.out_bias = optional(c.parts.out_bias, {c.out_features});
    in.p.bias = optional(c.parts.bias, table);
    in.p.tap_weights = optional(c.parts.tap_weights, table);
    if (c.parts.mask) in.mask = torch::rand({batch, height, width}) < 0.7;
    // Numbers that float32 holds, so that every dtype starts from the same.
    return in.as(at::kFloat, false).as(at::kDouble, false);
  }

  LayerInputs as(at::ScalarType type, bool requires_grad = true) const {
    const auto to = [&](const auto& tensor) { return leaf(tensor, type, requires_grad); };
    return {to(x),
            {to(p.score_weight), to(p.value_weight), to(p.value_bias), to(p.out_weight),
             to(p.out_bias), to(p.bias), to(p.tap_weights)},
            mask};
  }

  // All that are there, x first.
  std::vector<at::Tensor> given() const {
    std::vector<at::Tensor> list = {x, p.score_weight, p.value_weight, p.out_weight};
    for (const OptionalTensor& tensor : {p.value_bias, p.out_bias, p.bias, p.tap_weights}) {
      if (tensor.has_value()) list.push_back(*tensor);
    }
    return list;
  }
};

using LayerFunction = std::function<at::Tensor(const LayerInputs&, const LayerCase&)>;

inline at::Tensor run_layer(const LayerInputs& in, const LayerCase& c) {
  return layer(in.x, in.p, in.mask, c.geometry, c.upsample);
}

inline at::Tensor run_layer_composite(const LayerInputs& in, const LayerCase& c) {
  const LayerParameters& p = in.p;
  return layer_composite(in.x, p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                         p.out_bias, p.bias, p.tap_weights, in.mask,
                         layer_shape(in.x, p, in.mask, c.geometry, c.upsample), c.upsample);
}

// Numbers that every dtype holds, so that they are the same in all.
inline at::Tensor upstream(const at::Tensor& y, uint64_t seed = 7) {
  torch::manual_seed(seed);
  return torch::randn(y.sizes()).to(at::kBFloat16).to(y.scalar_type());
}

// y, then the gradients of given().
inline std::vector<at::Tensor> with_gradients(const LayerFunction& function,
                                              const LayerInputs& inputs, const LayerCase& c,
                                              at::ScalarType type) {
  const LayerInputs in = inputs.as(type);
  const at::Tensor y = function(in, c);
  y.backward(upstream(y));
  std::vector<at::Tensor> results = {y.detach()};
  for (const at::Tensor& tensor : in.given()) results.push_back(tensor.grad());
  return results;
}

}  // namespace qna::ops::testing
