// Every implementation against the reference, over shapes that fill no vector, tile or band.
#include "qna/kernels/window_attention.h"

#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

// float32 rounds at 6e-8; a gradient is a sum of up to some thousand terms of order 1, half of
// which cancel. The observed errors are below 3e-6 of the largest element.
constexpr double kTolerance = 2e-5;

struct Row {
  const char* what;
  WindowShape shape;
};

// A name says what the row is for. Defaults: 1 image, 3 x 3 window, no padding.
const Row kRows[] = {
    {"one pixel, one tap", {.kernel_h = 1, .kernel_w = 1}},
    {"one pixel under a padded window",
     {.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1}},
    {"the usual layer",
     {.batch = 2,
      .height = 9,
      .width = 13,
      .heads = 8,
      .head_dim = 8,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"full vectors, many value vectors",
     {.height = 5,
      .width = 11,
      .heads = 16,
      .head_dim = 20,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"more heads than any vector has lanes",
     {.height = 4, .width = 7, .heads = 37, .head_dim = 2, .queries = 3, .pad_left = 1}},
    {"one head, many dimensions",
     {.height = 5, .width = 9, .heads = 1, .head_dim = 128, .queries = 2, .pad_left = 2}},
    {"window of 7",
     {.height = 15,
      .width = 17,
      .heads = 4,
      .head_dim = 8,
      .queries = 2,
      .kernel_h = 7,
      .kernel_w = 7,
      .pad_top = 3,
      .pad_bottom = 3,
      .pad_left = 3,
      .pad_right = 3}},
    {"even window",
     {.height = 8,
      .width = 9,
      .heads = 3,
      .head_dim = 5,
      .queries = 2,
      .kernel_h = 2,
      .kernel_w = 4,
      .pad_top = 0,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 2}},
    {"flat window",
     {.height = 6,
      .width = 14,
      .heads = 4,
      .head_dim = 4,
      .kernel_h = 1,
      .kernel_w = 9,
      .pad_left = 4,
      .pad_right = 4}},
    {"upright window",
     {.height = 14,
      .width = 6,
      .heads = 4,
      .head_dim = 4,
      .kernel_h = 9,
      .kernel_w = 1,
      .pad_top = 4,
      .pad_bottom = 4}},
    {"dilated",
     {.height = 12,
      .width = 19,
      .heads = 6,
      .head_dim = 5,
      .queries = 2,
      .pad_top = 2,
      .pad_bottom = 2,
      .pad_left = 3,
      .pad_right = 3,
      .dilation_h = 2,
      .dilation_w = 3}},
    {"strided",
     {.batch = 2,
      .height = 13,
      .width = 22,
      .heads = 8,
      .head_dim = 6,
      .queries = 2,
      .stride_h = 2,
      .stride_w = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"stride larger than the window",
     {.height = 20,
      .width = 31,
      .heads = 5,
      .head_dim = 3,
      .queries = 2,
      .kernel_h = 2,
      .kernel_w = 2,
      .stride_h = 5,
      .stride_w = 4,
      .pad_top = 1,
      .pad_left = 1}},
    {"strided and dilated, rectangular",
     {.height = 17,
      .width = 23,
      .heads = 3,
      .head_dim = 7,
      .queries = 4,
      .kernel_h = 4,
      .kernel_w = 3,
      .stride_h = 3,
      .stride_w = 2,
      .pad_top = 5,
      .pad_bottom = 1,
      .pad_left = 0,
      .pad_right = 6,
      .dilation_h = 2,
      .dilation_w = 4}},
    {"padding above only",
     {.height = 7, .width = 7, .heads = 2, .head_dim = 3, .queries = 2, .pad_top = 2}},
    {"padding below only",
     {.height = 7, .width = 7, .heads = 2, .head_dim = 3, .queries = 2, .pad_bottom = 2}},
    {"padding left only",
     {.height = 7, .width = 7, .heads = 2, .head_dim = 3, .queries = 2, .pad_left = 2}},
    {"padding right only",
     {.height = 7, .width = 7, .heads = 2, .head_dim = 3, .queries = 2, .pad_right = 2}},
    {"window larger than the map",
     {.height = 3,
      .width = 4,
      .heads = 4,
      .head_dim = 5,
      .queries = 2,
      .kernel_h = 9,
      .kernel_w = 11,
      .pad_top = 4,
      .pad_bottom = 4,
      .pad_left = 5,
      .pad_right = 5}},
    {"windows completely in the padding",
     {.height = 4,
      .width = 5,
      .heads = 3,
      .head_dim = 4,
      .queries = 2,
      .pad_top = 6,
      .pad_bottom = 7,
      .pad_left = 8,
      .pad_right = 5}},
    {"windows in the padding, strided and dilated",
     {.height = 3,
      .width = 2,
      .heads = 3,
      .head_dim = 4,
      .queries = 2,
      .stride_h = 2,
      .stride_w = 3,
      .pad_top = 7,
      .pad_bottom = 9,
      .pad_left = 11,
      .pad_right = 9,
      .dilation_h = 3,
      .dilation_w = 2}},
    {"one row",
     {.height = 1,
      .width = 33,
      .heads = 8,
      .head_dim = 4,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"one column",
     {.height = 33,
      .width = 1,
      .heads = 8,
      .head_dim = 4,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"no image", {.batch = 0, .height = 5, .width = 5, .heads = 3, .head_dim = 2, .queries = 2}},
    {"more images than the backward has tasks",
     {.batch = 35,
      .height = 3,
      .width = 4,
      .heads = 2,
      .head_dim = 3,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"tall: many bands with shared rows",
     {.height = 83,
      .width = 5,
      .heads = 2,
      .head_dim = 3,
      .queries = 2,
      .kernel_h = 5,
      .pad_top = 2,
      .pad_bottom = 2,
      .pad_left = 1,
      .pad_right = 1}},
    {"tall and strided: bands that share no row",
     {.height = 90,
      .width = 4,
      .heads = 2,
      .head_dim = 3,
      .queries = 2,
      .kernel_h = 2,
      .stride_h = 3,
      .pad_left = 1,
      .pad_right = 1}},
    {"rows below the last window",
     {.height = 30,
      .width = 9,
      .heads = 2,
      .head_dim = 3,
      .queries = 2,
      .stride_h = 7,
      .stride_w = 5}},
    {"wide: column strips in the forward pass",
     {.height = 5,
      .width = 700,
      .heads = 8,
      .head_dim = 4,
      .queries = 2,
      .pad_top = 1,
      .pad_bottom = 1,
      .pad_left = 1,
      .pad_right = 1}},
    {"wide, one row, strips with padding on both sides",
     {.height = 1,
      .width = 900,
      .heads = 16,
      .head_dim = 8,
      .queries = 1,
      .kernel_h = 7,
      .kernel_w = 7,
      .stride_w = 2,
      .pad_top = 3,
      .pad_bottom = 3,
      .pad_left = 70,
      .pad_right = 90}},
};

void compare_all(const WindowShape& shape, const ProblemOptions& options) {
  const WindowProblem<float> problem(shape, options);
  const WindowResult expected = run_reference(problem);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(std::string(implementation->name) + " " + text(shape) + " " + text(options));
    expect_near(run_implementation(*implementation, problem), expected, kTolerance);
  }
}

// All of bias, tap weights and mask, both output kinds, and the layouts in turn.
void sweep_options(WindowShape shape) {
  for (int choice = 0; choice < 16; ++choice) {
    shape.separate = (choice & 8) != 0;
    compare_all(shape, {.bias = (choice & 1) != 0,
                        .tap_weights = (choice & 2) != 0,
                        .mask = (choice & 4) != 0,
                        .values_heads_fast = (choice % 3) == 1,
                        .out_heads_fast = (choice % 5) >= 3,
                        .gap = choice % 7 == 6 ? 5 : 0,
                        .seed = static_cast<uint32_t>(choice + 1)});
    if (::testing::Test::HasFailure()) return;  // one report is enough
  }
}

TEST(WindowAttention, Table) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.what);
    sweep_options(row.shape);
    if (HasFailure()) return;
  }
}

// A map with border, interior and tile tails for the sweeps below.
WindowShape sweep_shape() {
  return {.height = 4,
          .width = 9,
          .heads = 3,
          .head_dim = 3,
          .queries = 2,
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 1,
          .pad_right = 1};
}

TEST(WindowAttention, EveryHeadTail) {
  WindowShape shape = sweep_shape();
  for (shape.heads = 1; shape.heads <= 20 && !HasFailure(); ++shape.heads) sweep_options(shape);
}

TEST(WindowAttention, EveryDimensionTail) {
  for (const int64_t heads : {1, 3, 8}) {
    WindowShape shape = sweep_shape();
    shape.heads = heads;
    for (shape.head_dim = 1; shape.head_dim <= 40; ++shape.head_dim) {
      for (const bool separate : {false, true}) {
        shape.separate = separate;
        compare_all(shape, {.mask = shape.head_dim % 2 == 0,
                            .values_heads_fast = shape.head_dim % 3 == 0,
                            .out_heads_fast = shape.head_dim % 3 == 1,
                            .gap = shape.head_dim % 4});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(WindowAttention, EveryQueryTail) {
  WindowShape shape = sweep_shape();
  for (shape.queries = 1; shape.queries <= 5 && !HasFailure(); ++shape.queries) {
    sweep_options(shape);
  }
}

// The windows of a row are done in tiles of four where all their taps lie on the map.
TEST(WindowAttention, EveryWidthTail) {
  WindowShape shape = sweep_shape();
  for (shape.width = 1; shape.width <= 14; ++shape.width)
    for (shape.stride_w = 1; shape.stride_w <= 4; ++shape.stride_w)
      for (shape.dilation_w = 1; shape.dilation_w <= 2; ++shape.dilation_w) {
        shape.pad_right = std::max<int64_t>(1, shape.span_w() - shape.width - shape.pad_left);
        compare_all(shape, {.mask = shape.width % 3 == 0});
        if (HasFailure()) return;
      }
}

TEST(WindowAttention, RandomShapes) {
  RandomProblems random(2022);
  for (int round = 0; round < 400 && !HasFailure(); ++round) {
    const WindowShape shape = random.shape();
    compare_all(shape, random.options());
  }
}

}  // namespace
}  // namespace qna::kernels::testing
