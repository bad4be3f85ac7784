// One sweep for the layers that mix neighbours: a layer is one row, and gets every check of
// MixerSweep. A row is
//   struct ExampleRow : MixerRow {
//     using Layer = Example;
//     static std::vector<MixerCase<ExampleOptions>> cases();
//     static std::vector<MixerMistake<ExampleOptions>> mistakes();
//     // The definition, in double.
//     static Tensor by_loops(const Example& layer, const Tensor& x, const Tensor& mask);
//     static constexpr double kSingle = 5e-6;  // may differ in float32, of the largest
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Example, MixerSweep, ExampleRow);
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "qna/nn/mixer.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::nn::testing {

using ops::testing::complaint;
using ops::testing::expect_complaint;
using ops::testing::expect_words;
using ops::testing::near;
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

// ---- definitions ----

// A pixel as query, and the pixels that it looks at with their places in the table of biases.
struct Query {
  struct Key {
    int64_t y, x, bias_y, bias_x;
  };
  int64_t y, x;
  std::vector<Key> keys;  // those outside the map and masked ones are passed by
};

// softmax(q k / sqrt(dim) + bias) v by plain loops in double, between the layer's two products.
// query_at(i, j) is the query of place (i, j) of the output.
template <typename Layer, typename QueryAt>
Tensor attention_by_loops(const Layer& layer, const Tensor& x, const Tensor& mask,
                          std::array<int64_t, 2> out_size, const Tensor& table,
                          const QueryAt& query_at) {
  torch::NoGradGuard no_grad;
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t heads = layer->options().heads, dim = layer->proj->weight.size(1) / heads;
  const Tensor map = at_valid(x, mask).to(torch::kDouble);
  const Tensor qkv = torch::matmul(map, layer->qkv->weight.to(torch::kDouble).t())
                         .view({batch, height, width, 3, heads, dim});
  const Tensor biases = table.to(torch::kDouble);
  const Tensor mixed = torch::zeros({batch, out_size[0], out_size[1], heads, dim}, torch::kDouble);
  const auto part = qkv.accessor<double, 6>();
  const auto bias = biases.template accessor<double, 3>();
  auto out = mixed.accessor<double, 5>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < out_size[0]; ++i)
      for (int64_t j = 0; j < out_size[1]; ++j) {
        const Query query = query_at(i, j);
        for (int64_t h = 0; h < heads; ++h) {
          double sum = 0;
          for (const Query::Key& key : query.keys) {
            if (key.y < 0 || key.y >= height || key.x < 0 || key.x >= width) continue;
            if (mask.defined() && !mask[b][key.y][key.x].template item<bool>()) continue;
            double score = bias[key.bias_y][key.bias_x][h];
            for (int64_t d = 0; d < dim; ++d) {
              score += part[b][query.y][query.x][0][h][d] * part[b][key.y][key.x][1][h][d] /
                       std::sqrt(dim);
            }
            const double weight = std::exp(score);
            sum += weight;
            for (int64_t d = 0; d < dim; ++d) {
              out[b][i][j][h][d] += weight * part[b][key.y][key.x][2][h][d];
            }
          }
          for (int64_t d = 0; d < dim && sum > 0; ++d) out[b][i][j][h][d] /= sum;
        }
      }
  return torch::matmul(mixed.flatten(3), layer->proj->weight.to(torch::kDouble).t());
}

// ---- what a layer must do ----

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

// Whatever stands at masked places, NaN too, changes nothing where out_mask is true (everywhere
// without one), and gradients stay finite.
template <typename Layer>
void expect_no_influence_of_masked(Layer& layer, const Tensor& x, const Tensor& mask,
                                   const Tensor& out_mask = {}) {
  const auto run = [&](const Tensor& input) {
    return at_valid(layer->forward(input, mask), out_mask);
  };
  const auto run_alone = [&](const Tensor& input) {
    torch::NoGradGuard no_grad;
    return run(input);
  };
  const Tensor expected = run(x).detach(), expected_alone = run_alone(x);
  EXPECT_TRUE(expected.isfinite().all().template item<bool>());
  for (const double garbage : {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(), 1e30, -1e30}) {
    SCOPED_TRACE(garbage);
    const Tensor dirty = x.masked_fill(~mask.unsqueeze(-1), garbage).requires_grad_();
    layer->zero_grad();
    const Tensor y = run(dirty);
    EXPECT_TRUE(torch::equal(y, expected));
    y.square().sum().backward();
    for (const auto& item : layer->named_parameters()) {
      EXPECT_TRUE(item.value().grad().isfinite().all().template item<bool>()) << item.key();
    }
    EXPECT_TRUE(dirty.grad().isfinite().all().template item<bool>());
    EXPECT_EQ(at_valid(dirty.grad(), ~mask).abs().max().template item<double>(), 0);
    EXPECT_TRUE(torch::equal(run_alone(dirty), expected_alone));
  }
}

// The layer on an image in the corner of a larger map, with the rest masked, is the layer on the
// image alone. For a layer in double.
template <typename Layer>
void expect_same_on_canvas(Layer& layer, const Tensor& x, int64_t more_rows = 9,
                           int64_t more_columns = 4) {
  const int64_t height = x.size(1), width = x.size(2);
  const Tensor canvas =
      torch::randn({x.size(0), height + more_rows, width + more_columns, x.size(3)}, x.options());
  const Tensor mask = torch::zeros(canvas.sizes().slice(0, 3), torch::kBool);
  canvas.slice(1, 0, height).slice(2, 0, width).copy_(x);
  mask.slice(1, 0, height).slice(2, 0, width).fill_(true);
  const Tensor alone = layer(x);
  const Tensor part = layer(canvas, mask).slice(1, 0, alone.size(1)).slice(2, 0, alone.size(2));
  EXPECT_TRUE(near(part, alone, 1e-12));
}

// Views, batches of none, copies and lower precision. For a layer in float32.
template <typename Layer>
void expect_usual_manners(Layer& layer, const Tensor& x) {
  using Impl = typename Layer::ContainedType;
  torch::NoGradGuard no_grad;
  const Tensor y = layer(x);
  if constexpr (std::derived_from<Impl, Mixer>) {
    EXPECT_EQ(y.size(3), layer->out_features());
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t step = layer->stride()[axis];
      EXPECT_EQ(y.size(1 + axis), (x.size(1 + axis) + step - 1) / step);
    }
  } else {
    EXPECT_EQ(y.sizes(), x.sizes());
  }
  const Tensor turned = x.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
  EXPECT_TRUE(near(layer(turned), y, 5e-6));
  EXPECT_EQ(layer(x.slice(0, 0, 0)).sizes(), at::IntArrayRef({0, y.size(1), y.size(2), y.size(3)}));
  const auto copy = std::dynamic_pointer_cast<Impl>(layer->clone());
  EXPECT_TRUE(torch::equal(copy->forward(x), y));
  copy->to(torch::kBFloat16);
  const Tensor rounded = copy->forward(x.to(torch::kBFloat16));
  EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(near(rounded, y, 0.05));  // everything rounded at 2^-9
  const ops::testing::Autocast lower(torch::kBFloat16);
  EXPECT_TRUE(near(layer(x), y, 0.05));
}

// ---- the sweep ----

struct MixerRow {
  // What may differ in float32, of the largest element: it rounds at 6e-8, the sums have at most
  // 294 terms.
  static constexpr double kSingle = 5e-6;
  // In place of the largest element of a gradient whose elements are all smaller, such as 0.
  static constexpr double kLeastGradient = 1e-30;
};

template <typename Options>
struct MixerCase {
  std::string what;
  Options options;
  int64_t height, width;
  bool same_padding = true;  // an output has its pixel in the middle, whatever the map's size
};

// The cases, then each of them changed.
template <typename Options, typename Change>
std::vector<MixerCase<Options>> with_variants(std::vector<MixerCase<Options>> cases,
                                              const Change& change) {
  const size_t plain = cases.size();
  for (size_t i = 0; i < plain; ++i) {
    cases.push_back(cases[i]);
    change(cases.back());
  }
  return cases;
}

template <typename Options>
struct MixerMistake {
  Options options;
  std::vector<const char*> words;  // of the complaint
};

template <typename Options>
auto& features_of(Options& options) {
  if constexpr (requires { options.in_features; }) {
    return options.in_features;
  } else {
    return options.features;
  }
}

template <typename Row>
class MixerSweep : public ::testing::Test {
 public:
  using Layer = typename Row::Layer;

  // check(case, layer, x, mask) for every case, which then has a name in messages.
  template <typename Check>
  static void each_case(at::ScalarType type, const Check& check) {
    torch::manual_seed(71);
    for (auto& c : Row::cases()) {
      SCOPED_TRACE(c.what);
      Layer layer = randomized(Layer(c.options), type);
      const Tensor x = torch::randn({2, c.height, c.width, features_of(c.options)}, type);
      check(c, layer, x, random_mask(2, c.height, c.width));
    }
  }
};
TYPED_TEST_SUITE_P(MixerSweep);

TYPED_TEST_P(MixerSweep, PlainLoops) {
  this->each_case(torch::kDouble, [](auto&, auto& layer, const Tensor& x, const Tensor& mask) {
    const Tensor single = x.to(torch::kFloat);
    for (const Tensor& valid : {Tensor(), mask}) {
      SCOPED_TRACE(valid.defined() ? "mask" : "no mask");
      // float64: rounding of sums of some hundred terms, far below 1e-12.
      layer->to(torch::kDouble);
      EXPECT_TRUE(near(layer(x, valid), TypeParam::by_loops(layer, x, valid), 1e-12));
      // Other kernels may run without gradients.
      layer->to(torch::kFloat);
      const Tensor expected = TypeParam::by_loops(layer, single, valid);
      EXPECT_TRUE(near(layer(single, valid), expected, TypeParam::kSingle));
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(layer(single, valid), expected, TypeParam::kSingle));
    }
  });
}

TYPED_TEST_P(MixerSweep, GradientsByFiniteDifferences) {
  this->each_case(torch::kDouble, [](auto&, auto& layer, const Tensor& input, const Tensor& mask) {
    for (const Tensor& valid : {Tensor(), mask}) {
      SCOPED_TRACE(valid.defined() ? "mask" : "no mask");
      Tensor x = input.clone();
      layer->zero_grad();
      expect_gradients(layer, x, [&] { return layer(x, valid); });
    }
  });
}

// float32 may run in kernels of its own: the gradients are those of double, rounded.
TYPED_TEST_P(MixerSweep, GradientsInSinglePrecision) {
  this->each_case(torch::kDouble, [](auto&, auto& layer, const Tensor& x, const Tensor& mask) {
    const auto gradients = [&](at::ScalarType type) {
      layer->to(type);
      layer->zero_grad();
      const Tensor input = ops::testing::leaf(x, type);
      layer(input, mask).square().sum().backward();
      std::vector<Tensor> found = {input.grad()};
      for (const Tensor& parameter : layer->parameters()) found.push_back(parameter.grad().clone());
      return found;
    };
    const std::vector<Tensor> single = gradients(torch::kFloat);
    const std::vector<Tensor> exact = gradients(torch::kDouble);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_TRUE(near(single[i], exact[i], 2e-5, TypeParam::kLeastGradient)) << i;
    }
  });
}

TYPED_TEST_P(MixerSweep, Masks) {
  for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
    SCOPED_TRACE(c10::toString(type));
    this->each_case(type, [&](auto& c, auto& layer, const Tensor& x, const Tensor& mask) {
      expect_no_influence_of_masked(layer, x, mask);
      EXPECT_EQ(layer(x, torch::zeros_like(mask)).abs().max().template item<double>(), 0);
      if (c.same_padding && type == torch::kDouble) expect_same_on_canvas(layer, x);
    });
  }
}

TYPED_TEST_P(MixerSweep, UsualManners) {
  this->each_case(torch::kFloat, [](auto& c, auto& layer, const Tensor& x, const Tensor&) {
    if (c.same_padding) expect_usual_manners(layer, x);
  });
}

TYPED_TEST_P(MixerSweep, WrongArguments) {
  using Layer = typename TypeParam::Layer;
  for (const auto& mistake : TypeParam::mistakes()) {
    expect_words(complaint([&] { Layer layer(mistake.options); }), mistake.words);
  }
  auto options = TypeParam::cases()[0].options;
  options = {};
  features_of(options) = 8;
  Layer layer(options);
  const Tensor x = torch::randn({1, 5, 5, 8});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 7})); }, {"x", "8", "[1, 5, 5, 7]"});
  expect_complaint([&] { layer(x[0]); }, {"x", "[5, 5, 8]"});
  expect_complaint([&] { layer(x, torch::ones({1, 5, 5})); }, {"mask"});
  expect_complaint([&] { layer(x, torch::ones({1, 5, 4}, torch::kBool)); }, {"mask", "[1, 5, 4]"});
}

REGISTER_TYPED_TEST_SUITE_P(MixerSweep, PlainLoops, GradientsByFiniteDifferences,
                            GradientsInSinglePrecision, Masks, UsualManners, WrongArguments);

}  // namespace qna::nn::testing
