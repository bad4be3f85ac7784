// The fused layer of every implementation against the reference.
#include "qna/kernels/layer.h"

#include "qna/kernels/layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// Products of up to 70 terms before and up to 120 after the attention, all in float32, of order 1:
// errors of 1e-6 were seen, a score's error counts as much in its exponential.
constexpr double kTolerance = 2e-5;

void compare_all(const WindowShape& shape, const LayerOptions& options) {
  const LayerProblem<float> problem(shape, options);
  const std::vector<double> expected = problem.run(&layer_forward_reference<float>);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(std::string(implementation->name) + " " + text(problem.shape) + " " +
                 text(options));
    EXPECT_TRUE(near_by_scale(problem.run(*implementation), expected, kTolerance));
  }
}

// Every choice of biases, tap weights and mask.
void sweep_options(const WindowShape& shape, LayerOptions options) {
  for (int choice = 0; choice < 32; ++choice) {
    options.value_bias = (choice & 1) != 0;
    options.out_bias = (choice & 2) != 0;
    options.bias = (choice & 4) != 0;
    options.tap_weights = (choice & 8) != 0;
    options.mask = (choice & 16) != 0;
    compare_all(shape, options);
    if (::testing::Test::HasFailure()) return;  // one report is enough
  }
}

struct Row {
  const char* what;
  WindowShape shape;
  LayerOptions options;
};

const Row kRows[] = {
    {"one pixel, one feature",
     {.kernel_h = 1, .kernel_w = 1},
     {.in_features = 1, .out_features = 1}},
    {"the usual layer",
     padded({.batch = 2, .height = 6, .width = 13, .heads = 8, .head_dim = 8, .queries = 2}),
     {.in_features = 64, .out_features = 64}},
    {"window of 7",
     padded({.height = 9,
             .width = 10,
             .heads = 4,
             .head_dim = 8,
             .queries = 2,
             .kernel_h = 7,
             .kernel_w = 7}),
     {.in_features = 33, .out_features = 31}},
    {"down-sampling",
     padded({.batch = 2,
             .height = 11,
             .width = 14,
             .heads = 6,
             .head_dim = 5,
             .queries = 2,
             .stride_h = 2,
             .stride_w = 2}),
     {.in_features = 16, .out_features = 30}},
    {"dilated, one-sided padding",
     {.height = 9,
      .width = 12,
      .heads = 3,
      .head_dim = 7,
      .queries = 3,
      .kernel_h = 2,
      .kernel_w = 4,
      .stride_w = 3,
      .pad_top = 3,
      .pad_right = 5,
      .dilation_h = 3,
      .dilation_w = 2},
     {.in_features = 5, .out_features = 9}},
    {"up-sampling by 2",
     padded({.batch = 2, .height = 5, .width = 9, .heads = 4, .head_dim = 6}),
     {.in_features = 12, .out_features = 10, .upsample = 2}},
    {"up-sampling by 3",
     padded({.height = 4, .width = 6, .heads = 3, .head_dim = 5}),
     {.in_features = 7, .out_features = 17, .upsample = 3}},
    {"up-sampling with stride",
     padded({.height = 7, .width = 11, .heads = 2, .head_dim = 9, .stride_h = 2, .stride_w = 3}),
     {.in_features = 7, .out_features = 4, .upsample = 2}},
    {"window larger than the map",
     {.height = 2,
      .width = 3,
      .heads = 4,
      .head_dim = 4,
      .queries = 2,
      .kernel_h = 7,
      .kernel_w = 9,
      .pad_top = 3,
      .pad_bottom = 3,
      .pad_left = 4,
      .pad_right = 4},
     {}},
    {"windows completely in the padding",
     {.height = 3,
      .width = 4,
      .heads = 3,
      .head_dim = 4,
      .queries = 2,
      .pad_top = 5,
      .pad_bottom = 6,
      .pad_left = 7,
      .pad_right = 4},
     {}},
    {"no image", {.batch = 0, .height = 4, .width = 4}, {}},
    {"one column", padded({.height = 40, .width = 1, .heads = 4, .head_dim = 4}), {}},
};

TEST(Layer, Table) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.what);
    sweep_options(row.shape, row.options);
    if (HasFailure()) return;
  }
}

TEST(Layer, EveryFeatureTail) {
  const WindowShape shape =
      padded({.height = 3, .width = 7, .heads = 3, .head_dim = 3, .queries = 2});
  for (int64_t features = 1; features <= 70 && !HasFailure(); ++features) {
    compare_all(shape, {.in_features = features, .out_features = 71 - features});
    compare_all(shape, {.in_features = 4, .out_features = features, .mask = true});
  }
}

// Wide maps are cut into strips of columns, whose number depends on the window's rows and the
// features; few rows leave strips without a step in between.
TEST(Layer, WideMapsInStrips) {
  for (int64_t height = 1; height <= 5; ++height)
    for (const int64_t kernel : {3, 7})
      for (const int64_t stride : {1, 3}) {
        WindowShape shape = padded({.height = height,
                                    .width = 700,
                                    .heads = 4,
                                    .head_dim = 2,
                                    .queries = 2,
                                    .kernel_h = kernel,
                                    .kernel_w = kernel});
        shape.stride_w = stride;
        compare_all(shape, {.in_features = 3, .out_features = 3, .mask = height % 2 == 0});
        if (HasFailure()) return;
      }
  // Up-sampling from strips, and strips that lie in the padding altogether.
  compare_all(padded({.height = 3, .width = 700, .heads = 3, .head_dim = 3}),
              {.in_features = 2, .out_features = 3, .upsample = 2});
  compare_all({.height = 2,
               .width = 40,
               .heads = 16,
               .head_dim = 8,
               .queries = 4,
               .kernel_h = 5,
               .kernel_w = 5,
               .pad_top = 2,
               .pad_bottom = 2,
               .pad_left = 600,
               .pad_right = 700},
              {.in_features = 2, .out_features = 3});
}

TEST(Layer, TallMaps) {
  for (const int64_t width : {1, 3, 20, 64, 65})
    for (const int64_t stride : {1, 2, 4}) {
      WindowShape shape =
          padded({.height = 150, .width = width, .heads = 2, .head_dim = 3, .queries = 2});
      shape.stride_h = stride;
      compare_all(shape, {.in_features = 3, .out_features = 5});
      if (HasFailure()) return;
    }
}

// Scores that the shared exponentials cannot hold.
TEST(Layer, LargeScores) {
  for (const float scale : {30.0f, 100.0f, 1e4f}) {
    WindowShape shape = padded({.height = 6, .width = 11, .heads = 5, .head_dim = 3, .queries = 3});
    for (const int64_t upsample : {1, 2}) {
      const LayerOptions options{.in_features = 4, .upsample = upsample, .score_scale = scale};
      const LayerProblem<float> problem(shape, options);
      const std::vector<double> expected = problem.run(&layer_forward_reference<float>);
      for (const Implementation* implementation : simd_implementations()) {
        SCOPED_TRACE(std::string(implementation->name) + " " + text(options));
        // A score of this size is itself off by 2^-23 of it, from its product.
        EXPECT_TRUE(near_by_scale(problem.run(*implementation), expected,
                                  kTolerance + 4 * scale * 0x1p-23));
      }
    }
  }
}

// What a masked pixel holds does not matter, although it goes through the product.
TEST(Layer, MaskedPixelsDoNotMatter) {
  const WindowShape shape =
      padded({.height = 6, .width = 11, .heads = 5, .head_dim = 3, .queries = 2});
  const LayerProblem<float> clean(shape, {.mask = true});
  for (const float poison :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -3e38f}) {
    LayerProblem<float> problem = clean;
    for (size_t n = 0; n < problem.mask.size(); ++n) {
      if (problem.mask[n] == 0) std::fill_n(problem.x.begin() + n * 8, 8, poison);
    }
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + std::to_string(poison));
      EXPECT_EQ(problem.run(*implementation), clean.run(*implementation));
    }
  }
}

TEST(Layer, RandomShapes) {
  RandomProblems random(1997);
  for (int round = 0; round < 250 && !HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    compare_all(shape, {.in_features = random.between(1, 70),
                        .out_features = random.between(1, 70),
                        .upsample = shape.separate ? random.between(2, 3) : 1,
                        .value_bias = random.coin(),
                        .out_bias = random.coin(),
                        .bias = random.coin(),
                        .tap_weights = random.coin(),
                        .mask = random.coin(),
                        .seed = static_cast<uint32_t>(round + 1)});
  }
}

}  // namespace
}  // namespace qna::kernels::testing
