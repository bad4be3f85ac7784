#include "qna/kernels/window_shape.h"

#include <gtest/gtest.h>

#include <string>

#include "qna/base/error.h"

namespace qna::kernels {
namespace {

// What check_shape says; "" if it says nothing.
std::string complaint(const WindowShape& shape) {
  try {
    check_shape(shape, "the_caller");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_complaint(const WindowShape& shape, std::initializer_list<const char*> words) {
  const std::string said = complaint(shape);
  EXPECT_NE(said, "");
  for (const char* word : words) {
    EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
  }
  EXPECT_EQ(said.rfind("the_caller: ", 0), 0u) << said;
}

// A shape that is right, to spoil one field of.
WindowShape good() { return {.height = 5, .width = 6}; }

TEST(CheckShape, TakesGoodShapes) {
  EXPECT_EQ(complaint(good()), "");
  WindowShape shape = good();
  shape.batch = 0;
  EXPECT_EQ(complaint(shape), "");
  shape = {.kernel_h = 9, .kernel_w = 1, .pad_top = 8};  // fits the padded map exactly
  EXPECT_EQ(complaint(shape), "");
  EXPECT_EQ(shape.out_height(), 1);
}

TEST(CheckShape, NamesTheFieldTheRuleAndTheValue) {
  struct Row {
    int64_t WindowShape::*field;
    const char* name;
    int64_t least;
  };
  const Row rows[] = {
      {&WindowShape::batch, "batch", 0},           {&WindowShape::height, "height", 1},
      {&WindowShape::width, "width", 1},           {&WindowShape::heads, "heads", 1},
      {&WindowShape::head_dim, "head_dim", 1},     {&WindowShape::queries, "queries", 1},
      {&WindowShape::kernel_h, "kernel_h", 1},     {&WindowShape::kernel_w, "kernel_w", 1},
      {&WindowShape::stride_h, "stride_h", 1},     {&WindowShape::stride_w, "stride_w", 1},
      {&WindowShape::pad_top, "pad_top", 0},       {&WindowShape::pad_bottom, "pad_bottom", 0},
      {&WindowShape::pad_left, "pad_left", 0},     {&WindowShape::pad_right, "pad_right", 0},
      {&WindowShape::dilation_h, "dilation_h", 1}, {&WindowShape::dilation_w, "dilation_w", 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const std::string rule = "at least " + std::to_string(row.least);
    for (const int64_t wrong : {row.least - 1, int64_t{-7}, INT64_MIN}) {
      WindowShape shape = good();
      shape.*row.field = wrong;
      const std::string value = "got " + std::to_string(wrong);
      expect_complaint(shape, {row.name, rule.c_str(), value.c_str()});
    }
    WindowShape shape = good();
    shape.*row.field = INT64_MAX;
    expect_complaint(shape, {row.name, "at most 2^31", "got 9223372036854775807"});
  }
}

TEST(CheckShape, WindowThatDoesNotFit) {
  WindowShape shape = good();
  shape.kernel_h = 4;
  shape.dilation_h = 2;
  shape.pad_top = 1;  // 7 rows on 6
  expect_complaint(shape, {"must fit", "7 rows high", "kernel 4", "dilation 2", "6 padded rows"});
  shape = good();
  shape.kernel_w = 8;
  shape.pad_right = 1;  // 8 columns on 7
  expect_complaint(shape, {"must fit", "8 columns wide", "kernel 8", "7 padded columns"});
  shape.pad_left = 1;
  EXPECT_EQ(complaint(shape), "");
}

// Every field in range, but an array that no memory holds.
TEST(CheckShape, ProductsThatOverflow) {
  const int64_t big = int64_t{1} << 30;
  expect_complaint({.batch = big, .height = big, .width = big}, {"value map", "2^48", "2^63"});
  expect_complaint({.height = 1 << 20, .width = 1 << 20, .heads = 1, .head_dim = 1 << 9},
                   {"value map", "2^48", "got 562949953421312"});  // 2^49
  expect_complaint({.height = 1 << 20, .width = 1 << 20, .queries = 1 << 9}, {"score map", "2^48"});
  expect_complaint({.heads = 1 << 20,
                    .queries = 1 << 20,
                    .kernel_h = 1 << 5,
                    .kernel_w = 1 << 5,
                    .pad_top = 1 << 5,
                    .pad_left = 1 << 5},
                   {"relative bias", "2^48"});
  // Padding alone can make the output large.
  expect_complaint({.pad_top = big, .pad_left = big}, {"output", "2^48"});
  expect_complaint({.kernel_h = big, .dilation_h = big}, {"window's height", "2^48"});
}

TEST(ValidTaps, AgainstALoop) {
  for (int64_t kernel = 1; kernel <= 5; ++kernel)
    for (int64_t dilation = 1; dilation <= 4; ++dilation)
      for (int64_t size = 0; size <= 7; ++size)
        for (int64_t start = -25; start <= 12; ++start) {
          int64_t first = -1;
          int64_t count = 0;
          for (int64_t t = 0; t < kernel; ++t) {
            const int64_t at = start + t * dilation;
            if (at < 0 || at >= size) continue;
            if (count++ == 0) first = t;
          }
          const TapRange range = valid_taps(start, kernel, dilation, size);
          ASSERT_EQ(range.end - range.begin, count)
              << start << " " << kernel << " " << dilation << " " << size;
          if (count > 0) {
            ASSERT_EQ(range.begin, first);
          }
        }
}

TEST(WindowShape, OutputSizeAgainstALoop) {
  for (int64_t height = 1; height <= 6; ++height)
    for (int64_t stride = 1; stride <= 4; ++stride)
      for (int64_t pad = 0; pad <= 4; ++pad)
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          const WindowShape shape{.height = height,
                                  .width = 9,
                                  .stride_h = stride,
                                  .pad_top = pad,
                                  .pad_bottom = 1,
                                  .dilation_h = dilation};
          int64_t windows = 0;
          while (windows * stride + 2 * dilation < height + pad + 1) ++windows;
          if (windows == 0) {
            expect_complaint(shape, {"must fit"});
          } else {
            ASSERT_EQ(complaint(shape), "");
            ASSERT_EQ(shape.out_height(), windows);
          }
        }
}

}  // namespace
}  // namespace qna::kernels
