// Pillow's resize to the bit, by every instruction set.
#include "qna/image/resize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "hwy/highway.h"
#include "qna/image/golden_testonly.h"
#include "qna/image/resize_weights.h"

namespace qna::image {
namespace {

using namespace testing;

// Calls `work` once for every instruction set of this build that the CPU has.
void for_each_target(const std::function<void()>& work) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    work();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// tests/images/resize.txt: all ratios, tails, single pixels, boxes.
void compare_sizes_with_pillow() {
  std::ifstream table(image_path("resize.txt"));
  int64_t height, width, channels, new_height, new_width;
  std::string filter, expected;
  Box box;
  int count = 0;
  while (table >> height >> width >> channels >> new_height >> new_width >> filter >> box.left >>
         box.top >> box.right >> box.bottom >> expected) {
    const Image image = resize(noise(height, width, channels), new_height, new_width,
                               filter == "bicubic" ? Filter::kBicubic : Filter::kBilinear, box);
    EXPECT_EQ(image.height, new_height);
    EXPECT_EQ(image.width, new_width);
    EXPECT_EQ(image.channels, channels);
    EXPECT_EQ(hash(image.pixels), expected)
        << fmt::format("{} x {} x {} to {} x {}, {}, box {} {} {} {}", height, width, channels,
                       new_height, new_width, filter, box.left, box.top, box.right, box.bottom);
    ++count;
  }
  EXPECT_EQ(count, 534);  // lines of resize.txt
}

TEST(Resize, AsPillow) { for_each_target(&compare_sizes_with_pillow); }

TEST(Resize, WithoutBoxIsTheWhole) {
  const Image image = noise(37, 50, 3);
  EXPECT_EQ(resize(image, 20, 61, Filter::kBicubic).pixels,
            resize(image, 20, 61, Filter::kBicubic, Box{0, 0, 50, 37}).pixels);
}

TEST(Resize, SameSizeIsACopy) {
  const Image image = noise(13, 17, 3);
  EXPECT_EQ(resize(image, 13, 17, Filter::kBicubic).pixels, image.pixels);
}

// Rounded weights do not add up to exactly one, but no colour may drift for it.
TEST(Resize, AFlatColourStays) {
  for (const int value : {0, 1, 128, 254, 255}) {
    Image image = make_image(61, 47, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(value));
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic})
      for (const int64_t size : {1, 5, 46, 48, 200}) {
        for (const uint8_t pixel : resize(image, size, size + 1, filter).pixels) {
          ASSERT_EQ(pixel, value) << size;
        }
      }
  }
}

TEST(ResizeWeights, AddUpToOneAndStayInside) {
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic})
    for (const int64_t in : {1, 2, 7, 100})
      for (const int64_t out : {1, 3, 99, 1000}) {
        const ResizeWeights weights = resize_weights(in, 0, static_cast<double>(in), out, filter);
        for (int64_t i = 0; i < out; ++i) {
          const auto [first, count] = weights.spans[i];
          ASSERT_GE(first, 0);
          ASSERT_GE(count, 1);
          ASSERT_LE(first + count, in);
          const int64_t sum = std::accumulate(weights.of(i), weights.of(i) + count, int64_t{0});
          // Each weight is rounded by at most a half.
          ASSERT_NEAR(static_cast<double>(sum), 1 << kWeightBits, static_cast<double>(count) / 2);
        }
      }
}

TEST(ResizeErrors, AreNamed) {
  const Image image = noise(4, 6, 3);
  const auto said = [&](int64_t height, int64_t width, const std::optional<Box>& box) {
    return complaint([&] { resize(image, height, width, Filter::kBicubic, box); });
  };
  const std::string size =
      "resize: height and width must be at least 1 and make at most 268435456 pixels, got ";
  EXPECT_EQ(said(0, 5, {}), size + "0 and 5");
  EXPECT_EQ(said(5, -1, {}), size + "5 and -1");
  EXPECT_EQ(said(20000, 20000, {}), size + "20000 and 20000");
  EXPECT_TRUE(contains(said(INT64_MAX, INT64_MAX, {}), size));
  const std::string inside =
      "resize: the box must lie in the picture of 6 x 4 (width x height) and not be empty, got ";
  EXPECT_EQ(said(2, 2, Box{0, 0, 6.5, 4}), inside + "left 0, top 0, right 6.5, bottom 4");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Box& box : {Box{-1, 0, 6, 4}, Box{0, -0.1, 6, 4}, Box{0, 0, 6, 4.1}, Box{3, 0, 3, 4},
                         Box{4, 0, 3, 4}, Box{0, 2, 6, 2}, Box{nan, 0, 6, 4}, Box{0, 0, 6, nan}}) {
    EXPECT_TRUE(contains(said(2, 2, box), inside));
  }
}

TEST(ResizeErrors, BrokenImage) {
  Image image = noise(4, 6, 3);
  image.pixels.pop_back();
  EXPECT_EQ(complaint([&] { resize(image, 2, 2, Filter::kBicubic); }),
            "resize: a picture of 4 x 6 x 3 must have 72 bytes of pixels, got 71");
  image.channels = 2;
  EXPECT_EQ(complaint([&] { resize(image, 2, 2, Filter::kBicubic); }),
            "resize: a picture must have 1 or 3 channels, got 2");
  EXPECT_TRUE(contains(complaint([] {
                         resize({0, 5, 3, {}}, 2, 2, Filter::kBicubic);
                       }),
                       "got height 0 and width 5"));
}

}  // namespace
}  // namespace qna::image
