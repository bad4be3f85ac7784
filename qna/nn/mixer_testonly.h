// What the tests of layers that mix neighbours share.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "qna/nn/mixer.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::nn::testing {

using torch::Tensor;

// Every parameter matters, none is at its initial value.
template <typename Layer>
Layer randomized(Layer layer, at::ScalarType type) {
  torch::NoGradGuard no_grad;
  for (Tensor& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  layer->to(type);
  return layer;
}

// True in about two thirds of the places, and at least in the corners, so that an image's extent is
// the map's.
inline Tensor random_mask(int64_t batch, int64_t height, int64_t width) {
  Tensor mask = torch::rand({batch, height, width}) < 0.65;
  mask.select(1, 0).select(1, 0).fill_(true);
  mask.select(1, height - 1).select(1, width - 1).fill_(true);
  return mask;
}

// Where the mask is true (everywhere without one).
inline Tensor at_valid(const Tensor& y, const Tensor& mask) {
  return mask.defined() ? y.masked_fill(~mask.unsqueeze(-1), 0) : y;
}

// Directional derivatives by central differences. Their error is about 1e-10 of the slopes of the
// hundreds of terms of the sum, which partly cancel. For a layer in double; run() gives its output.
template <typename Layer, typename Run>
void expect_gradients(const Layer& layer, Tensor& x, const Run& run) {
  x.requires_grad_();
  const Tensor slope = torch::randn_like(run().detach());
  const auto loss = [&] { return (run() * slope).sum(); };
  loss().backward();
  std::vector<Tensor> inputs = layer->parameters();
  inputs.push_back(x);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int n = 0; n < 2; ++n) {
      torch::NoGradGuard no_grad;
      const Tensor direction = torch::randn_like(inputs[i]);
      const double step = 1e-5;
      inputs[i].add_(direction, step);
      const double above = loss().template item<double>();
      inputs[i].sub_(direction, 2 * step);
      const double below = loss().template item<double>();
      inputs[i].add_(direction, step);
      const double expected = (above - below) / (2 * step);
      const double found = (inputs[i].grad() * direction).sum().item<double>();
      EXPECT_NEAR(found, expected, 1e-6 * std::max(1.0, std::abs(expected))) << "input " << i;
    }
  }
}

// Whatever stands at masked places, NaN too, changes nothing, and gradients stay finite.
template <typename Layer>
void expect_no_influence_of_masked(Layer& layer, const Tensor& x, const Tensor& mask) {
  const Tensor expected = layer(x, mask).detach();
  EXPECT_TRUE(expected.isfinite().all().item<bool>());
  for (const double garbage :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1e30}) {
    const Tensor dirty = x.masked_fill(~mask.unsqueeze(-1), garbage).requires_grad_();
    layer->zero_grad();
    const Tensor y = layer(dirty, mask);
    EXPECT_TRUE(torch::equal(y, expected)) << garbage;
    y.square().sum().backward();
    for (const auto& item : layer->named_parameters()) {
      EXPECT_TRUE(item.value().grad().isfinite().all().template item<bool>()) << item.key();
    }
    EXPECT_TRUE(dirty.grad().isfinite().all().item<bool>());
    EXPECT_EQ(at_valid(dirty.grad(), ~mask).abs().max().item<double>(), 0);
  }
}

// The layer on an image in the corner of a larger map, with the rest masked, is the layer on the
// image alone. For a layer in double.
template <typename Layer>
void expect_same_on_canvas(Layer& layer, const Tensor& x) {
  const int64_t height = x.size(1), width = x.size(2);
  const Tensor canvas = torch::randn({x.size(0), height + 9, width + 4, x.size(3)}, x.options());
  Tensor mask = torch::zeros({x.size(0), height + 9, width + 4}, torch::kBool);
  canvas.slice(1, 0, height).slice(2, 0, width).copy_(x);
  mask.slice(1, 0, height).slice(2, 0, width).fill_(true);
  const Tensor alone = layer(x);
  const Tensor part = layer(canvas, mask).slice(1, 0, alone.size(1)).slice(2, 0, alone.size(2));
  EXPECT_TRUE(ops::testing::near(part, alone, 1e-12));
}

// Views, batches of none, copies and lower precision. For a layer in float32.
template <typename Layer>
void expect_usual_manners(Layer& layer, const Tensor& x) {
  torch::NoGradGuard no_grad;
  const Tensor y = layer(x);
  EXPECT_EQ(y.size(3), layer->out_features());
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t step = layer->stride()[axis];
    EXPECT_EQ(y.size(1 + axis), (x.size(1 + axis) + step - 1) / step);
  }
  const Tensor turned = x.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
  EXPECT_TRUE(ops::testing::near(layer(turned), y, 5e-6));
  EXPECT_EQ(layer(x.slice(0, 0, 0)).sizes(), at::IntArrayRef({0, y.size(1), y.size(2), y.size(3)}));
  using Impl = typename Layer::ContainedType;
  const auto copy = std::dynamic_pointer_cast<Impl>(layer->clone());
  EXPECT_TRUE(torch::equal(copy->forward(x), y));
  copy->to(torch::kBFloat16);
  const Tensor rounded = copy->forward(x.to(torch::kBFloat16));
  EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(ops::testing::near(rounded, y, 0.05));  // everything rounded at 2^-9
  const ops::testing::Autocast lower(torch::kBFloat16);
  EXPECT_TRUE(ops::testing::near(layer(x), y, 0.05));
}

}  // namespace qna::nn::testing
