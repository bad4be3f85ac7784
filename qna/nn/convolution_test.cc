// Convolutions as mixers, against plain loops: windows, strides, edges, masks, gradients.
#include "qna/nn/convolution.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;

struct ConvolutionRow : MixerRow {
  using Layer = Convolution;

  static Tensor by_loops(const Convolution& layer, const Tensor& x, const Tensor& mask) {
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

  // All of them dense and depth-wise.
  static std::vector<MixerCase<ConvolutionOptions>> cases() {
    const std::vector<MixerCase<ConvolutionOptions>> cases = {
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
    return with_variants(cases, [](MixerCase<ConvolutionOptions>& c) {
      c.what += ", depth-wise";
      c.options.depthwise = true;
    });
  }

  static std::vector<MixerMistake<ConvolutionOptions>> mistakes() {
    return {{{}, {"Convolution", "in_features", "got 0"}},
            {{.in_features = 8, .out_features = -1}, {"out_features", "got -1"}},
            {{.in_features = 8, .kernel_size = {0, 3}}, {"kernel_size", "height", "got 0"}},
            {{.in_features = 8, .stride = {1, 0}}, {"stride", "width", "got 0"}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Convolution, MixerSweep, ConvolutionRow);

}  // namespace
}  // namespace qna::nn
