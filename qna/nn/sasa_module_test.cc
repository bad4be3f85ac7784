// Stand-alone self-attention against plain loops: windows, strides, edges, masks, gradients.
#include "qna/nn/sasa.h"

#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;

struct SasaRow : MixerRow {
  using Layer = Sasa;

  // Without padding given, a window's query is that of pixel (i, j) * stride, and the window lies
  // around it.
  static Tensor by_loops(const Sasa& layer, const Tensor& x, const Tensor& mask) {
    const SasaOptions& o = layer->options();
    const auto& padding = *o.padding;
    const int64_t span_h = (o.kernel_size[0] - 1) * o.dilation[0];
    const int64_t span_w = (o.kernel_size[1] - 1) * o.dilation[1];
    const int64_t rows = (x.size(1) + padding[0] + padding[1] - span_h - 1) / o.stride[0] + 1;
    const int64_t columns = (x.size(2) + padding[2] + padding[3] - span_w - 1) / o.stride[1] + 1;
    const Tensor table = layer->relative_bias.defined()
                             ? layer->relative_bias
                             : torch::zeros({o.kernel_size[0], o.kernel_size[1], o.heads});
    return attention_by_loops(layer, x, mask, {rows, columns}, table, [&](int64_t i, int64_t j) {
      const int64_t top = i * o.stride[0] - padding[0], left = j * o.stride[1] - padding[2];
      Query query{top + span_h / 2, left + span_w / 2, {}};
      for (int64_t u = 0; u < o.kernel_size[0]; ++u)
        for (int64_t w = 0; w < o.kernel_size[1]; ++w) {
          query.keys.push_back({top + u * o.dilation[0], left + w * o.dilation[1], u, w});
        }
      return query;
    });
  }

  // All of them by both methods.
  static std::vector<MixerCase<SasaOptions>> cases() {
    using Sides = std::array<int64_t, 4>;
    std::vector<MixerCase<SasaOptions>> cases = {
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
        {"no padding", {.in_features = 4, .heads = 2, .padding = Sides{0, 0, 0, 0}}, 5, 6, false},
        {"padding on one side",
         {.in_features = 4,
          .heads = 2,
          .kernel_size = {5, 5},
          .stride = {2, 2},
          .padding = Sides{2, 0, 1, 2}},
         7,
         8,
         false},
        {"no bias", {.in_features = 8, .heads = 1, .relative_bias = false}, 4, 4},
    };
    return with_variants(cases, [](MixerCase<SasaOptions>& c) {
      c.what += ", unfold";
      c.options.method = SasaMethod::kUnfold;
    });
  }

  static std::vector<MixerMistake<SasaOptions>> mistakes() {
    return {{{}, {"Sasa", "in_features", "got 0"}},
            {{.in_features = 8, .out_features = -1}, {"out_features", "got -1"}},
            {{.in_features = 8, .heads = 3}, {"heads", "divide", "8", "got 3"}},
            {{.in_features = 8, .kernel_size = {3, 0}}, {"kernel_size", "width", "got 0"}},
            {{.in_features = 8, .stride = {0, 1}}, {"stride", "height", "got 0"}},
            {{.in_features = 8, .dilation = {1, 0}}, {"dilation", "width", "got 0"}},
            {{.in_features = 8, .padding = std::array<int64_t, 4>{1, 2, 1, 1}},
             {"padding", "half the window (1)", "got 2"}}};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sasa, MixerSweep, SasaRow);

TEST(Sasa, MapSmallerThanTheWindow) {
  Sasa layer(SasaOptions{.in_features = 8, .padding = std::array<int64_t, 4>{0, 0, 0, 0}});
  expect_complaint([&] { layer(torch::randn({1, 2, 5, 8})); }, {"fit", "[1, 2, 5, 8]"});
}

}  // namespace
}  // namespace qna::nn
