// Problems for the tests of qna::sasa: one table, from which all of them draw.
#pragma once

#include <functional>

#include <torch/utils.h>
#include "qna/ops/sasa.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::ops::testing {

struct SasaCase {
  const char* what;
  std::array<int64_t, 3> map;  // batch, height, width
  int64_t heads, dim;
  WindowGeometry geometry;
  bool bias = true;
  bool mask = false;
};

inline const std::vector<SasaCase>& sasa_cases() {
  static const std::vector<SasaCase> cases = {
      {"usual", {2, 6, 7}, 4, 3, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"masked", {2, 6, 7}, 3, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, true, true},
      {"no bias", {1, 5, 6}, 2, 5, {{3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}}, false},
      {"one head", {1, 5, 6}, 1, 9, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, false, true},
      {"one dimension", {1, 5, 6}, 9, 1, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"even, rectangular", {1, 7, 8}, 3, 2, {{2, 4}, {1, 1}, {0, 1, 1, 2}, {1, 1}}},
      {"strided", {2, 9, 8}, 2, 3, {{3, 3}, {2, 3}, {1, 1, 1, 1}, {1, 1}}},
      {"dilated", {1, 9, 10}, 2, 3, {{3, 2}, {1, 1}, {2, 2, 1, 2}, {2, 3}}},
      {"one-sided padding", {1, 5, 5}, 2, 2, {{3, 3}, {1, 2}, {2, 0, 0, 1}, {1, 1}}},
      {"window larger than the map", {1, 2, 3}, 2, 2, {{7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}}},
      {"windows in the padding",
       {1, 3, 2},
       2,
       2,
       {{3, 3}, {2, 1}, {5, 4, 4, 5}, {1, 1}},
       true,
       true},
      {"one pixel", {3, 1, 1}, 3, 2, {{1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}},
      {"one row", {1, 1, 9}, 2, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"no image", {0, 4, 4}, 2, 2, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}},
  };
  return cases;
}

// The arguments of one call. Gradients by with_gradients(): out, then q, k, v, bias.
struct SasaInputs {
  at::Tensor q, k, v;
  OptionalTensor bias, mask;

  static SasaInputs random(const SasaCase& c, uint64_t seed = 1) {
    torch::manual_seed(seed);
    const auto [batch, height, width] = c.map;
    const auto& g = c.geometry;
    const auto outputs = [&](int64_t size, int64_t padding, int axis) {
      return (size + padding - (g.kernel_size[axis] - 1) * g.dilation[axis] - 1) / g.stride[axis] +
             1;
    };
    SasaInputs in;
    in.q = torch::randn({batch, outputs(height, g.padding[0] + g.padding[1], 0),
                         outputs(width, g.padding[2] + g.padding[3], 1), c.heads, c.dim});
    in.k = torch::randn({batch, height, width, c.heads, c.dim});
    in.v = torch::randn({batch, height, width, c.heads, c.dim});
    if (c.bias) in.bias = torch::randn({g.kernel_size[0], g.kernel_size[1], c.heads});
    if (c.mask) in.mask = torch::rand({batch, height, width}) < 0.7;
    // Values that float32 holds, so that every dtype starts from the same numbers.
    return in.as(at::kDouble, false);
  }

  SasaInputs as(at::ScalarType type, bool requires_grad = true) const {
    return {leaf(q, type, requires_grad), leaf(k, type, requires_grad),
            leaf(v, type, requires_grad), leaf(bias, type, requires_grad), mask};
  }

  std::vector<at::Tensor> given() const {
    std::vector<at::Tensor> list = {q, k, v};
    if (bias.has_value()) list.push_back(*bias);
    return list;
  }
};

using SasaFunction = std::function<at::Tensor(const SasaInputs&, const SasaCase&)>;

inline at::Tensor run_op(const SasaInputs& in, const SasaCase& c) {
  return sasa(in.q, in.k, in.v, in.bias, in.mask, c.geometry);
}
inline at::Tensor run_composite(const SasaInputs& in, const SasaCase& c) {
  return sasa_composite(in.q, in.k, in.v, in.bias, in.mask, c.geometry);
}

// One window at a time, from the definition in ops/sasa.h. Differentiable.
inline at::Tensor run_definition(const SasaInputs& in, const SasaCase& c) {
  const WindowGeometry& g = c.geometry;
  std::vector<at::Tensor> windows;
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t i = 0; i < in.q.size(1); ++i)
      for (int64_t j = 0; j < in.q.size(2); ++j) {
        std::vector<at::Tensor> scores, values;
        for (int64_t tap = 0; tap < g.kernel_size[0] * g.kernel_size[1]; ++tap) {
          const int64_t ty = tap / g.kernel_size[1], tx = tap % g.kernel_size[1];
          const int64_t y = i * g.stride[0] - g.padding[0] + ty * g.dilation[0];
          const int64_t x = j * g.stride[1] - g.padding[2] + tx * g.dilation[1];
          if (y < 0 || y >= in.k.size(1) || x < 0 || x >= in.k.size(2)) continue;
          if (in.mask.has_value() && !(*in.mask)[b][y][x].item<bool>()) continue;
          const at::Tensor score = (in.q[b][i][j] * in.k[b][y][x]).sum(-1);
          scores.push_back(in.bias.has_value() ? score + (*in.bias)[ty][tx] : score);
          values.push_back(in.v[b][y][x]);
        }
        windows.push_back(
            scores.empty()
                ? torch::zeros_like(in.q[b][i][j])
                : (torch::stack(scores).softmax(0).unsqueeze(-1) * torch::stack(values)).sum(0));
      }
  if (windows.empty())
    return in.q * 0 + in.k.sum() + in.v.sum() + (in.bias ? in.bias->sum() : in.q.sum());
  return torch::stack(windows).view(in.q.sizes());
}

// Numbers that every dtype holds, so that they are the same in all.
inline at::Tensor random_like(const at::Tensor& tensor, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(tensor.sizes()).to(at::kBFloat16).to(tensor.scalar_type());
}

// Output and gradients of `function` on leaves of the given dtype.
inline std::vector<at::Tensor> with_gradients(const SasaFunction& function,
                                              const SasaInputs& inputs, const SasaCase& c,
                                              at::ScalarType type) {
  const SasaInputs in = inputs.as(type);
  const at::Tensor out = function(in, c);
  out.backward(random_like(out, 7));
  std::vector<at::Tensor> results = {out.detach()};
  for (const at::Tensor& tensor : in.given()) {
    results.push_back(tensor.grad().defined() ? tensor.grad() : torch::zeros_like(tensor));
  }
  return results;
}

}  // namespace qna::ops::testing
