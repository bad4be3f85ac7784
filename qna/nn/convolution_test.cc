// Convolutions as mixers, against plain loops: windows, strides, edges, masks, gradients.
#include "qna/nn/convolution.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;
using ops::testing::expect_complaint;
using ops::testing::near;

// The definition, in double.
Tensor by_loops(const Convolution& layer, const Tensor& x, const Tensor& mask) {
  torch::NoGradGuard no_grad;
  const ConvolutionOptions& o = layer->options();
  const int64_t batch = x.size(0), height = x.size(1), width = x.size(2);
  const Tensor map = at_valid(x, mask).to(torch::kDouble);
  const Tensor kernel = layer->conv->weight.to(torch::kDouble);
  const int64_t rows = (height - 1) / o.stride[0] + 1, columns = (width - 1) / o.stride[1] + 1;
  Tensor mixed = torch::zeros({batch, rows, columns, kernel.size(0)}, torch::kDouble);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t u = 0; u < o.kernel_size[0]; ++u)
        for (int64_t w = 0; w < o.kernel_size[1]; ++w) {
          const int64_t y = i * o.stride[0] + u - (o.kernel_size[0] - 1) / 2;
          const int64_t c = j * o.stride[1] + w - (o.kernel_size[1] - 1) / 2;
          if (y < 0 || y >= height || c < 0 || c >= width) continue;
          const Tensor pixel = map.select(1, y).select(1, c);      // [B, in]
          const Tensor weight = kernel.select(2, u).select(2, w);  // [out, in or 1]
          mixed.select(1, i).select(1, j).add_(o.depthwise ? pixel * weight.squeeze(1)
                                                           : torch::matmul(pixel, weight.t()));
        }
  return o.depthwise ? torch::matmul(mixed, layer->proj->weight.to(torch::kDouble).t()) : mixed;
}

struct ConvolutionCase {
  const char* what;
  ConvolutionOptions options;
  int64_t height, width;
};

const ConvolutionCase kConvolutionCases[] = {
    {"3 x 3", {.in_features = 6}, 5, 7},
    {"5 x 3", {.in_features = 4, .out_features = 6, .kernel_size = {5, 3}}, 4, 6},
    {"even window", {.in_features = 4, .kernel_size = {2, 4}}, 5, 6},
    {"window larger than the map", {.in_features = 4, .kernel_size = {7, 7}}, 3, 2},
    {"one pixel", {.in_features = 4}, 1, 1},
    {"1 x 1", {.in_features = 4, .kernel_size = {1, 1}}, 2, 3},
    {"stride 2", {.in_features = 4, .out_features = 8, .stride = {2, 2}}, 6, 8},
    {"stride 2, odd map", {.in_features = 4, .out_features = 8, .stride = {2, 2}}, 7, 5},
    {"2 x 2, stride 2",
     {.in_features = 4, .out_features = 8, .kernel_size = {2, 2}, .stride = {2, 2}},
     5,
     4},
    {"stride 3 x 1", {.in_features = 4, .kernel_size = {5, 5}, .stride = {3, 1}}, 8, 4},
};

// Every case dense and depth-wise.
template <typename Visit>
void for_each_case(const Visit& visit) {
  for (const bool depthwise : {false, true}) {
    for (const ConvolutionCase& c : kConvolutionCases) {
      SCOPED_TRACE(::testing::Message() << c.what << (depthwise ? ", depth-wise" : ""));
      ConvolutionOptions options = c.options;
      options.depthwise = depthwise;
      visit(options, torch::randn({2, c.height, c.width, options.in_features}, torch::kDouble),
            random_mask(2, c.height, c.width));
    }
  }
}

TEST(Convolution, PlainLoops) {
  torch::manual_seed(91);
  for_each_case([](const ConvolutionOptions& options, const Tensor& x, const Tensor& mask) {
    Convolution layer = randomized(Convolution(options), torch::kDouble);
    EXPECT_TRUE(near(layer(x), by_loops(layer, x, {}), 1e-12));
    EXPECT_TRUE(near(layer(x, mask), by_loops(layer, x, mask), 1e-12));
    // float32 rounds at 6e-8; sums of at most 294 terms.
    layer->to(torch::kFloat);
    EXPECT_TRUE(near(layer(x.to(torch::kFloat)), by_loops(layer, x.to(torch::kFloat), {}), 5e-6));
  });
}

TEST(Convolution, Gradients) {
  torch::manual_seed(92);
  for_each_case([](const ConvolutionOptions& options, Tensor x, const Tensor& mask) {
    Convolution layer = randomized(Convolution(options), torch::kDouble);
    expect_gradients(layer, x, [&] { return layer(x, mask); });
  });
}

TEST(Convolution, Masks) {
  torch::manual_seed(93);
  for_each_case([](const ConvolutionOptions& options, const Tensor& x, const Tensor& mask) {
    Convolution layer = randomized(Convolution(options), torch::kDouble);
    expect_no_influence_of_masked(layer, x, mask);
    expect_same_on_canvas(layer, x);
  });
}

TEST(Convolution, UsualManners) {
  torch::manual_seed(94);
  for_each_case([](const ConvolutionOptions& options, const Tensor& x, const Tensor&) {
    Convolution layer = randomized(Convolution(options), torch::kFloat);
    expect_usual_manners(layer, x.to(torch::kFloat));
  });
}

TEST(Convolution, WrongArguments) {
  const auto wrong = [](const ConvolutionOptions& options,
                        std::initializer_list<const char*> words) {
    expect_complaint([&] { Convolution layer(options); }, words);
  };
  wrong({}, {"Convolution", "in_features", "got 0"});
  wrong({.in_features = 8, .out_features = -1}, {"out_features", "got -1"});
  wrong({.in_features = 8, .kernel_size = {0, 3}}, {"kernel_size", "height", "got 0"});
  wrong({.in_features = 8, .stride = {1, 0}}, {"stride", "width", "got 0"});
  Convolution layer(ConvolutionOptions{.in_features = 8});
  expect_complaint([&] { layer(torch::randn({1, 5, 5, 7})); }, {"x", "8", "[1, 5, 5, 7]"});
}

}  // namespace
}  // namespace qna::nn
