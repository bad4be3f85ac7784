// The same bits, always: for any number of workers, wherever in the image or batch a window lies,
// and in every run.
#include "qna/kernels/layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

const WindowShape kShapes[] = {
    {.batch = 1,
     .height = 40,
     .width = 23,
     .heads = 8,
     .head_dim = 4,
     .queries = 2,
     .pad_top = 1,
     .pad_bottom = 1,
     .pad_left = 1,
     .pad_right = 1},
    {.batch = 3,
     .height = 29,
     .width = 17,
     .heads = 3,
     .head_dim = 5,
     .queries = 3,
     .kernel_h = 5,
     .kernel_w = 4,
     .stride_h = 2,
     .pad_top = 2,
     .pad_bottom = 2,
     .pad_left = 2,
     .pad_right = 1},
    {.batch = 1,
     .height = 9,
     .width = 300,
     .heads = 16,
     .head_dim = 4,
     .queries = 2,
     .kernel_h = 7,
     .kernel_w = 7,
     .pad_top = 3,
     .pad_bottom = 3,
     .pad_left = 3,
     .pad_right = 3},
    {.batch = 2,
     .height = 33,
     .width = 6,
     .heads = 2,
     .head_dim = 3,
     .queries = 4,
     .pad_top = 2,
     .pad_bottom = 2,
     .pad_left = 2,
     .pad_right = 2,
     .dilation_h = 2,
     .dilation_w = 2,
     .separate = true},
    // More images than the backward pass has tasks.
    {.batch = 19,
     .height = 5,
     .width = 6,
     .heads = 2,
     .head_dim = 3,
     .queries = 2,
     .pad_top = 1,
     .pad_bottom = 1,
     .pad_left = 1,
     .pad_right = 1},
};

TEST(Determinism, WindowAttentionForAnyNumberOfWorkers) {
  for (const WindowShape& shape : kShapes) {
    const WindowProblem<float> problem(shape, {.mask = true});
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + text(shape));
      const WindowResult one = run_implementation(*implementation, problem, 1);
      for (const int workers : {1, 2, 3, 8}) {
        EXPECT_TRUE(same_bits(run_implementation(*implementation, problem, workers), one))
            << workers << " workers";
      }
    }
  }
}

TEST(Determinism, LayerForAnyNumberOfWorkers) {
  for (const WindowShape& shape : kShapes) {
    const LayerProblem<float> problem(
        shape, {.in_features = 9, .out_features = 7, .upsample = shape.separate ? 2 : 1});
    for (const Implementation* implementation : simd_implementations()) {
      SCOPED_TRACE(std::string(implementation->name) + " " + text(shape));
      const std::vector<double> one = problem.run(*implementation, 1);
      for (const int workers : {1, 2, 3, 8}) {
        EXPECT_EQ(problem.run(*implementation, workers), one) << workers << " workers";
      }
    }
  }
}

// An image's output does not depend on the others in the batch, nor on its place there.
TEST(Determinism, ImagesAreIndependent) {
  const WindowShape shape{.batch = 5,
                          .height = 8,
                          .width = 13,
                          .heads = 5,
                          .head_dim = 3,
                          .queries = 3,
                          .pad_top = 1,
                          .pad_bottom = 1,
                          .pad_left = 1,
                          .pad_right = 1};
  const LayerProblem<float> batch(shape, {.in_features = 6, .out_features = 5, .mask = true});
  LayerProblem<float> one = batch;
  one.shape.batch = 1;
  const int64_t pixels = shape.height * shape.width;
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(implementation->name);
    const std::vector<double> all = batch.run(*implementation);
    const int64_t size = static_cast<int64_t>(all.size()) / shape.batch;
    for (int64_t b = 0; b < shape.batch; ++b) {
      one.x.assign(batch.x.begin() + b * pixels * 6, batch.x.begin() + (b + 1) * pixels * 6);
      one.mask.assign(batch.mask.begin() + b * pixels, batch.mask.begin() + (b + 1) * pixels);
      const std::vector<double> part(all.begin() + b * size, all.begin() + (b + 1) * size);
      EXPECT_EQ(one.run(*implementation), part) << "image " << b;
    }
  }
}

// The gradients of scores and values, likewise. (Those of the tables are sums over images.) One
// image more or less changes the cut into bands, so this compares batches of equal cut.
TEST(Determinism, GradientsDoNotDependOnOtherImages) {
  const WindowShape shape{.batch = 4,
                          .height = 21,
                          .width = 9,
                          .heads = 3,
                          .head_dim = 4,
                          .queries = 2,
                          .pad_top = 1,
                          .pad_bottom = 1,
                          .pad_left = 1,
                          .pad_right = 1};
  const WindowProblem<float> before(shape, {.seed = 1});
  const WindowProblem<float> other(shape, {.seed = 2});
  WindowProblem<float> after = before;  // images 0 and 1 stay, 2 and 3 are replaced
  const auto replace_half = [](std::vector<float>& cells, const std::vector<float>& by) {
    std::copy(by.begin() + by.size() / 2, by.end(), cells.begin() + cells.size() / 2);
  };
  replace_half(after.scores, other.scores);
  replace_half(after.values, other.values);
  replace_half(after.grad_out, other.grad_out);
  for (const Implementation* implementation : simd_implementations()) {
    SCOPED_TRACE(implementation->name);
    const WindowResult a = run_implementation(*implementation, before);
    const WindowResult b = run_implementation(*implementation, after);
    for (const auto& [first, second] : {std::pair(&a.out, &b.out),
                                        {&a.grad_scores, &b.grad_scores},
                                        {&a.grad_values, &b.grad_values}}) {
      const auto half = static_cast<std::ptrdiff_t>(first->size() / 2);
      EXPECT_TRUE(std::equal(first->begin(), first->begin() + half, second->begin()));
      EXPECT_FALSE(std::equal(first->begin() + half, first->end(), second->begin() + half));
    }
  }
}

struct Shift {
  int64_t rows, columns;
};

// The layer on an image and on the same image moved by `shift`: outputs whose window lies on the
// part that both have must be the same, bit by bit, whatever tile, strip or step they fall into.
void expect_shift_equivariant(const Implementation& implementation, const WindowShape& shape,
                              const LayerOptions& options, Shift shift) {
  SCOPED_TRACE(fmt::format("{} shift {} {}", implementation.name, shift.rows, shift.columns) +
               text(shape) + text(options));
  const LayerProblem<float> image(shape, options);
  LayerProblem<float> moved = image;
  const int64_t in = options.in_features;
  for (int64_t y = shift.rows; y < shape.height; ++y)
    for (int64_t x = shift.columns; x < shape.width; ++x) {
      const int64_t from = (y - shift.rows) * shape.width + x - shift.columns;
      std::copy_n(image.x.begin() + from * in, in, moved.x.begin() + (y * shape.width + x) * in);
    }
  const std::vector<double> a = image.run(implementation);
  const std::vector<double> b = moved.run(implementation);
  const int64_t f = options.upsample;
  const int64_t out = options.out_features;
  const int64_t rows = shape.out_height();
  const int64_t columns = shape.out_width();
  int64_t compared = 0;
  // Windows of the moved image that see only what was moved, and no border in either image.
  for (int64_t i = shift.rows; i < rows; ++i)
    for (int64_t j = shift.columns; j < columns; ++j) {
      const auto inside = [](int64_t start, int64_t span, int64_t size) {
        return start >= 0 && start + span <= size;
      };
      const int64_t top = i - shape.pad_top;
      const int64_t left = j - shape.pad_left;
      if (!inside(top - shift.rows, shape.span_h(), shape.height) ||
          !inside(left - shift.columns, shape.span_w(), shape.width) ||
          !inside(top, shape.span_h(), shape.height) ||
          !inside(left, shape.span_w(), shape.width)) {
        continue;
      }
      for (int64_t y = 0; y < f; ++y)
        for (int64_t c = 0; c < f * out; ++c) {
          const int64_t here = ((i * f + y) * columns * f + j * f) * out + c;
          const int64_t there =
              (((i - shift.rows) * f + y) * columns * f + (j - shift.columns) * f) * out + c;
          ASSERT_EQ(b[here], a[there]) << "window " << i << ", " << j;
          ++compared;
        }
    }
  ASSERT_GT(compared, 0);
}

TEST(Determinism, ShiftEquivariance) {
  const WindowShape shape{.height = 13,
                          .width = 30,
                          .heads = 5,
                          .head_dim = 3,
                          .queries = 3,
                          .pad_top = 1,
                          .pad_bottom = 1,
                          .pad_left = 1,
                          .pad_right = 1};
  for (const Implementation* implementation : simd_implementations()) {
    // Scores of order 1, and such that some, most or all windows need their own maximum.
    for (const float scale : {1.0f, 60.0f, 100.0f, 1e4f})
      for (int64_t rows = 0; rows < 4; ++rows)
        for (int64_t columns = 0; columns < 6; ++columns) {
          expect_shift_equivariant(*implementation, shape,
                                   {.in_features = 4, .out_features = 5, .score_scale = scale},
                                   {rows, columns});
          if (HasFailure()) return;
        }
  }
}

TEST(Determinism, ShiftEquivarianceOfOtherWindows) {
  WindowShape shape{.height = 12,
                    .width = 20,
                    .heads = 8,
                    .head_dim = 5,
                    .queries = 2,
                    .kernel_h = 4,
                    .kernel_w = 6,
                    .pad_top = 1,
                    .pad_bottom = 2,
                    .pad_left = 3,
                    .pad_right = 2};
  for (const Implementation* implementation : simd_implementations()) {
    expect_shift_equivariant(*implementation, shape, {.score_scale = 50}, {2, 3});
    expect_shift_equivariant(*implementation, shape, {.upsample = 2, .score_scale = 50}, {3, 1});
    WindowShape dilated = shape;
    dilated.dilation_h = dilated.dilation_w = 2;
    expect_shift_equivariant(*implementation, dilated, {.score_scale = 50}, {1, 5});
    // Across strips of columns.
    WindowShape wide = shape;
    wide.height = 6;
    wide.width = 900;
    expect_shift_equivariant(*implementation, wide,
                             {.in_features = 3, .out_features = 3, .score_scale = 50}, {1, 37});
  }
}

}  // namespace
}  // namespace qna::kernels::testing
