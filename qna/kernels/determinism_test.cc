// The layer's outputs have the same bits wherever in the image a window lies. (For any number of
// workers, in any batch and in every run: see sweep_testonly.h.)
#include "qna/kernels/qna_layer_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

struct Shift {
  int64_t rows, columns;
};

// The layer on an image and on the same image moved by `shift`: outputs whose window lies on the
// part that both have must be the same, bit by bit, whatever tile, strip or step they fall into.
void expect_shift_equivariant(const WindowShape& shape, const QnALayerOptions& options,
                              Shift shift) {
  const QnALayerProblem<float> image(shape, options);
  SCOPED_TRACE(fmt::format("shift {} {} {}", shift.rows, shift.columns, image.text()));
  QnALayerProblem<float> moved = image;
  const int64_t in = options.in_features;
  for (int64_t y = shift.rows; y < shape.height; ++y)
    for (int64_t x = shift.columns; x < shape.width; ++x) {
      const int64_t from = (y - shift.rows) * shape.width + x - shift.columns;
      std::copy_n(image.x.begin() + from * in, in, moved.x.begin() + (y * shape.width + x) * in);
    }
  const std::vector<double> a = image.run().cells();
  const std::vector<double> b = moved.run().cells();
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
  for_each_simd([] {
    // Scores of order 1, and such that some, most or all windows need their own maximum.
    for (const float scale : {1.0f, 60.0f, 100.0f, 1e4f})
      for (int64_t rows = 0; rows < 4; ++rows)
        for (int64_t columns = 0; columns < 6; ++columns) {
          expect_shift_equivariant(Map(1, 13, 30, 5, 3, 3).padded(),
                                   {.in_features = 4, .out_features = 5, .score_scale = scale},
                                   {rows, columns});
          if (HasFailure()) return;
        }
  });
}

TEST(Determinism, ShiftEquivarianceOfOtherWindows) {
  const Map shape = Map(1, 12, 20, 8, 5, 2).kernel(4, 6).padding(1, 2, 3, 2);
  for_each_simd([&] {
    expect_shift_equivariant(shape, {.score_scale = 50}, {2, 3});
    expect_shift_equivariant(shape, {.upsample = 2, .score_scale = 50}, {3, 1});
    expect_shift_equivariant(shape.dilation(2, 2), {.score_scale = 50}, {1, 5});
    // Across strips of columns.
    expect_shift_equivariant(Map(1, 6, 900, 8, 5, 2).kernel(4, 6).padding(1, 2, 3, 2),
                             {.in_features = 3, .out_features = 3, .score_scale = 50}, {1, 37});
  });
}

}  // namespace
}  // namespace qna::kernels::testing
