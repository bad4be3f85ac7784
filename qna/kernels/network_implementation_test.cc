// Every entry point of the kernels for whole networks runs the implementation that is forced.
#include <functional>

#include "qna/kernels/network_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// One float through each: y = 2 x, or what a mean, a norm or a softmax of one value is.
std::vector<std::function<float(float)>> entries(Runtime& runtime, const PackedWeights& two,
                                                 const float& factor) {
  const ConvolutionShape s{};
  return {
      [&, s](float x) {
        float y = 0;
        convolution({.shape = s, .x = &x, .weights = &two, .y = &y}, runtime);
        return y / 2;
      },
      [&, s](float x) {
        float y = 0;
        depthwise({s, &x, &factor, &y}, runtime);
        return y / factor;
      },
      [&, s](float x) {
        float y = 0;
        max_pool({.shape = s, .x = &x, .y = &y}, runtime);
        return y;
      },
      [&, s](float x) {
        float y = 0;
        average_pool({.shape = s, .x = &x, .y = &y}, runtime);
        return y;
      },
      [&](float x) {
        float y = 0;
        bilinear({1, 1, 1, 1, 1, &x, &y}, runtime);
        return y;
      },
      [&](float x) {
        float y = 0;
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
                             .out = &y},
                            runtime);
        return y;
      },
      [&](float x) {
        float y = 0;
        instance_norm({.batch = 1,
                       .positions = 1,
                       .features = 1,
                       .weight = nullptr,
                       .bias = &x,
                       .x = &x,
                       .y = &y},
                      runtime);
        return y;
      },
      [&](float x) {
        float y = 0;
        layer_norm({.rows = 1, .features = 1, .weight = nullptr, .bias = &x, .x = &x, .y = &y},
                   runtime);
        return y;
      },
      [&](float x) {
        float y = 0;
        norm_mean({.batch = 1,
                   .positions = 1,
                   .features = 1,
                   .weight = nullptr,
                   .bias = nullptr,
                   .x = &x,
                   .y = &y,
                   .normalize = false},
                  runtime);
        return y;
      },
  };
}

TEST(NetworkImplementation, ForcedOneRuns) {
  ThreadRuntime runtime;
  const float factor = 2;
  for (const Implementation& implementation : implementations()) {
    if (!implementation.supported) continue;
    force_implementation(implementation.name);
    const MatrixArgs matrix{.inner = 1,
                            .columns = 1,
                            .weight = &factor,
                            .inner_stride = 1,
                            .column_stride = 1,
                            .bias = nullptr};
    const PackedWeights two = pack_matrix(matrix, runtime);
    int index = 0;
    for (const auto& entry : entries(runtime, two, factor)) {
      // Something else was the last to run.
      const bool is_reference = implementation.name == std::string("reference");
      force_implementation(is_reference ? simd_implementations().front()->name : "reference");
      pack_matrix(matrix, runtime);
      ASSERT_NE(last_implementation(), implementation.name);
      force_implementation(implementation.name);
      EXPECT_EQ(entry(7), 7) << implementation.name << " entry " << index;
      EXPECT_EQ(last_implementation(), implementation.name) << "entry " << index;
      ++index;
    }
  }
  force_implementation("");
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
