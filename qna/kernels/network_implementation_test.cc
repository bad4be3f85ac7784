// Every entry point of the kernels for whole networks runs the implementation that is forced.
#include <functional>

#include "qna/kernels/sweep_testonly.h"

namespace qna::kernels::testing {
namespace {

TEST(NetworkImplementation, ForcedOneRuns) {
  ThreadRuntime runtime;
  const ConvolutionShape one{};
  const float factor = 2, x = 7;
  for (const std::string& name : supported_implementations()) {
    PackedWeights two;
    {
      ForcedImplementation forced(name);
      two = pack_matrix({1, 1, &factor, 1, 1, nullptr}, runtime);
    }
    struct Row {
      const char* what;
      float expected;
      std::function<void(float*)> run;
    };
    // One float through each: y = 2 x, or what a mean, a norm or a softmax of one value is.
    const Row rows[] = {
        {"convolution", 2 * x,
         [&](float* y) { convolution({.shape = one, .x = &x, .weights = &two, .y = y}, runtime); }},
        {"depthwise", 2 * x,
         [&](float* y) { depthwise({.shape = one, .x = &x, .weight = &factor, .y = y}, runtime); }},
        {"max_pool", x, [&](float* y) { max_pool({.shape = one, .x = &x, .y = y}, runtime); }},
        {"average_pool", x,
         [&](float* y) { average_pool({.shape = one, .x = &x, .y = y}, runtime); }},
        {"bilinear", x,
         [&](float* y) {
           bilinear({1, 1, 1, 1, 1, &x, y}, runtime);
         }},
        {"multihead_attention", x,
         [&](float* y) {
           multihead_attention({.batch = 1,
                                .queries = 1,
                                .keys = 1,
                                .heads = 1,
                                .head_dim = 1,
                                .q = &x,
                                .q_stride = 1,
                                .k = &x,
                                .k_stride = 1,
                                .v = &x,
                                .v_stride = 1,
                                .scale = 1,
                                .out = y},
                               runtime);
         }},
        {"instance_norm", x,
         [&](float* y) {
           instance_norm({.batch = 1,
                          .positions = 1,
                          .features = 1,
                          .weight = nullptr,
                          .bias = &x,
                          .x = &x,
                          .y = y},
                         runtime);
         }},
        {"layer_norm", x,
         [&](float* y) {
           layer_norm({.rows = 1, .features = 1, .weight = nullptr, .bias = &x, .x = &x, .y = y},
                      runtime);
         }},
        {"norm_mean", x, [&](float* y) {
           norm_mean({.batch = 1,
                      .positions = 1,
                      .features = 1,
                      .weight = nullptr,
                      .bias = nullptr,
                      .x = &x,
                      .y = y,
                      .normalize = false},
                     runtime);
         }}};
    for (const Row& row : rows) {
      SCOPED_TRACE(fmt::format("{} {}", name, row.what));
      float y = 0;
      expect_forced_runs(name, [&] { row.run(&y); });
      EXPECT_EQ(y, row.expected);
    }
  }
}

TEST(NetworkImplementation, NoneIsMissing) {
  for (const Implementation& i : implementations()) {
    EXPECT_TRUE(i.convolution != nullptr && i.depthwise != nullptr && i.max_pool != nullptr &&
                i.average_pool != nullptr && i.instance_norm != nullptr && i.bilinear != nullptr &&
                i.multihead_attention != nullptr && i.layer_norm != nullptr &&
                i.norm_mean != nullptr)
        << i.name;
  }
}

}  // namespace
}  // namespace qna::kernels::testing
