// Stand-alone self-attention against plain loops: windows, strides, edges, masks, gradients.
#include "qna/nn/sasa.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;
using ops::testing::expect_complaint;
using ops::testing::near;

// The definition, in double. Without padding given, a window's query is that of pixel (i, j) *
// stride, and the window lies around it.
Tensor by_loops(const Sasa& layer, const Tensor& x, const Tensor& mask) {
  torch::NoGradGuard no_grad;
  const SasaOptions& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const int64_t dim = o.out_features / o.heads;
  const Tensor map = (mask.defined() ? at_valid(x, mask) : x).to(torch::kDouble);
  const Tensor qkv = torch::matmul(map, layer->qkv->weight.to(torch::kDouble).t())
                         .view({batch, height, width, 3, o.heads, dim});
  const Tensor table =
      layer->relative_bias.defined()
          ? layer->relative_bias.to(torch::kDouble)
          : torch::zeros({o.kernel_size[0], o.kernel_size[1], o.heads}, torch::kDouble);
  const auto& padding = *o.padding;
  const int64_t span_h = (o.kernel_size[0] - 1) * o.dilation[0];
  const int64_t span_w = (o.kernel_size[1] - 1) * o.dilation[1];
  const int64_t rows = (height + padding[0] + padding[1] - span_h - 1) / o.stride[0] + 1;
  const int64_t columns = (width + padding[2] + padding[3] - span_w - 1) / o.stride[1] + 1;
  Tensor mixed = torch::zeros({batch, rows, columns, o.heads, dim}, torch::kDouble);
  const auto part = qkv.accessor<double, 6>();
  const auto bias = table.accessor<double, 3>();
  auto out = mixed.accessor<double, 5>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t h = 0; h < o.heads; ++h) {
          const int64_t top = i * o.stride[0] - padding[0], left = j * o.stride[1] - padding[2];
          const int64_t y = top + span_h / 2, c = left + span_w / 2;
          double sum = 0;
          for (int64_t u = 0; u < o.kernel_size[0]; ++u)
            for (int64_t w = 0; w < o.kernel_size[1]; ++w) {
              const int64_t ky = top + u * o.dilation[0], kx = left + w * o.dilation[1];
              if (ky < 0 || ky >= height || kx < 0 || kx >= width) continue;
              if (mask.defined() && !mask[b][ky][kx].item<bool>()) continue;
              double score = bias[u][w][h];
              for (int64_t d = 0; d < dim; ++d) {
                score += part[b][y][c][0][h][d] * part[b][ky][kx][1][h][d] / std::sqrt(dim);
              }
              const double weight = std::exp(score);
              sum += weight;
              for (int64_t d = 0; d < dim; ++d) {
                out[b][i][j][h][d] += weight * part[b][ky][kx][2][h][d];
              }
            }
          for (int64_t d = 0; d < dim && sum > 0; ++d) out[b][i][j][h][d] /= sum;
        }
  return torch::matmul(mixed.flatten(3), layer->proj->weight.to(torch::kDouble).t());
}

struct Case {
  const char* what;
  SasaOptions options;
  int64_t height, width;
};

const Case kCases[] = {
    {"3 x 3", {.in_features = 8, .heads = 2}, 6, 7},
    {"5 x 3", {.in_features = 6, .heads = 3, .kernel_size = {5, 3}}, 4, 9},
    {"even window", {.in_features = 6, .heads = 1, .kernel_size = {4, 2}}, 5, 6},
    {"window larger than the map", {.in_features = 8, .heads = 4, .kernel_size = {7, 7}}, 3, 2},
    {"one pixel", {.in_features = 4, .heads = 2}, 1, 1},
    {"stride 2", {.in_features = 6, .out_features = 12, .heads = 4, .stride = {2, 2}}, 6, 8},
    {"stride 2, odd map", {.in_features = 6, .out_features = 8, .stride = {2, 2}}, 7, 5},
    {"stride 3 x 1, 5 x 5",
     {.in_features = 4, .heads = 2, .kernel_size = {5, 5}, .stride = {3, 1}},
     8,
     4},
    {"dilation", {.in_features = 4, .heads = 2, .dilation = {2, 3}}, 7, 8},
    {"even and dilated",
     {.in_features = 4, .heads = 2, .kernel_size = {2, 2}, .dilation = {2, 2}},
     5,
     5},
    {"no padding",
     {.in_features = 4, .heads = 2, .padding = std::array<int64_t, 4>{0, 0, 0, 0}},
     5,
     6},
    {"padding on one side",
     {.in_features = 4,
      .heads = 2,
      .kernel_size = {5, 5},
      .stride = {2, 2},
      .padding = std::array<int64_t, 4>{2, 0, 1, 2}},
     7,
     8},
    {"no bias", {.in_features = 8, .heads = 1, .relative_bias = false}, 4, 4},
};

Sasa make(const Case& c, SasaMethod method, at::ScalarType type) {
  SasaOptions options = c.options;
  options.method = method;
  return randomized(Sasa(options), type);
}

constexpr SasaMethod kMethods[] = {SasaMethod::kFused, SasaMethod::kUnfold};

TEST(Sasa, PlainLoops) {
  torch::manual_seed(71);
  for (const Case& c : kCases) {
    for (const SasaMethod method : kMethods) {
      SCOPED_TRACE(::testing::Message()
                   << c.what << (method == SasaMethod::kFused ? "" : ", unfold"));
      Sasa layer = make(c, method, torch::kDouble);
      const Tensor x = torch::randn({2, c.height, c.width, c.options.in_features}, torch::kDouble);
      const Tensor mask = random_mask(2, c.height, c.width);
      // float64: rounding of sums of some ten terms, far below 1e-12.
      EXPECT_TRUE(near(layer(x), by_loops(layer, x, {}), 1e-12));
      EXPECT_TRUE(near(layer(x, mask), by_loops(layer, x, mask), 1e-12));
      // float32 rounds at 6e-8; sums of at most 49 terms.
      layer->to(torch::kFloat);
      const Tensor single = x.to(torch::kFloat);
      EXPECT_TRUE(near(layer(single), by_loops(layer, single, {}), 5e-6));
      EXPECT_TRUE(near(layer(single, mask), by_loops(layer, single, mask), 5e-6));
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(near(layer(single, mask), by_loops(layer, single, mask), 5e-6));
    }
  }
}

TEST(Sasa, Gradients) {
  torch::manual_seed(72);
  for (const Case& c : kCases) {
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(::testing::Message() << c.what << (with_mask ? ", mask" : ""));
      Sasa layer = make(c, SasaMethod::kFused, torch::kDouble);
      Tensor x = torch::randn({2, c.height, c.width, c.options.in_features}, torch::kDouble);
      const Tensor mask = with_mask ? random_mask(2, c.height, c.width) : Tensor();
      expect_gradients(layer, x, [&] { return layer(x, mask); });
    }
  }
}

// float32 runs in kernels of its own: the gradients are those of double, rounded.
TEST(Sasa, GradientsInSinglePrecision) {
  torch::manual_seed(73);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Sasa exact = make(c, SasaMethod::kUnfold, torch::kDouble);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.in_features}, torch::kDouble);
    const Tensor mask = random_mask(2, c.height, c.width);
    const auto gradients = [&](Sasa& layer, at::ScalarType type) {
      Tensor input = x.to(type).clone().requires_grad_();
      layer->zero_grad();
      layer(input, mask).square().sum().backward();
      std::vector<Tensor> found = {input.grad()};
      for (const Tensor& parameter : layer->parameters()) found.push_back(parameter.grad().clone());
      return found;
    };
    const std::vector<Tensor> expected = gradients(exact, torch::kDouble);
    SasaOptions options = c.options;
    Sasa layer(options);
    {
      torch::NoGradGuard no_grad;
      for (size_t i = 0; i < layer->parameters().size(); ++i) {
        layer->parameters()[i].copy_(exact->parameters()[i]);
      }
    }
    const std::vector<Tensor> found = gradients(layer, torch::kFloat);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(near(found[i], expected[i], 2e-5)) << i;
    }
  }
}

TEST(Sasa, Masks) {
  torch::manual_seed(74);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Sasa layer = make(c, SasaMethod::kFused, torch::kFloat);
    const Tensor x = torch::randn({2, c.height, c.width, c.options.in_features});
    expect_no_influence_of_masked(layer, x, random_mask(2, c.height, c.width));
    EXPECT_EQ(
        layer(x, torch::zeros({2, c.height, c.width}, torch::kBool)).abs().max().item<double>(), 0);
    if (c.options.padding.has_value()) continue;
    layer->to(torch::kDouble);
    expect_same_on_canvas(layer, x.to(torch::kDouble));
  }
}

TEST(Sasa, UsualManners) {
  torch::manual_seed(75);
  for (const Case& c : kCases) {
    if (c.options.padding.has_value()) continue;
    SCOPED_TRACE(c.what);
    for (const SasaMethod method : kMethods) {
      Sasa layer = make(c, method, torch::kFloat);
      expect_usual_manners(layer, torch::randn({2, c.height, c.width, c.options.in_features}));
    }
  }
}

TEST(Sasa, WrongArguments) {
  const auto wrong = [](const SasaOptions& options, std::initializer_list<const char*> words) {
    expect_complaint([&] { Sasa layer(options); }, words);
  };
  wrong({}, {"Sasa", "in_features", "got 0"});
  wrong({.in_features = 8, .out_features = -1}, {"out_features", "got -1"});
  wrong({.in_features = 8, .heads = 3}, {"heads", "divide", "8", "got 3"});
  wrong({.in_features = 8, .kernel_size = {3, 0}}, {"kernel_size", "width", "got 0"});
  wrong({.in_features = 8, .stride = {0, 1}}, {"stride", "height", "got 0"});
  wrong({.in_features = 8, .dilation = {1, 0}}, {"dilation", "width", "got 0"});
  wrong({.in_features = 8, .padding = std::array<int64_t, 4>{1, 2, 1, 1}},
        {"padding", "half the window (1)", "got 2"});
  Sasa layer(SasaOptions{.in_features = 8, .padding = std::array<int64_t, 4>{0, 0, 0, 0}});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 7})); }, {"x", "8", "[1, 5, 5, 7]"});
  expect_complaint([&] { layer(torch::randn({1, 2, 5, 8})); }, {"fit", "[1, 2, 5, 8]"});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 8}), torch::ones({1, 5, 5})); }, {"mask"});
}

}  // namespace
}  // namespace qna::nn
