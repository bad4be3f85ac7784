#include "qna/image/crop.h"

#include <gtest/gtest.h>

#include "qna/image/golden_testonly.h"

namespace qna::image {
namespace {

using namespace testing;

// Every pixel says where it is: its row, its column, and a third channel.
Image places(int64_t height, int64_t width, int64_t channels) {
  Image image = make_image(height, width, channels);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        image.row(y)[x * channels + c] = static_cast<uint8_t>(10 * (y + 1) + (x + 1) + 100 * c);
      }
  return image;
}

TEST(Crop, TakesTheRectangle) {
  for (const int64_t channels : {1, 3}) {
    const Image image = places(5, 7, channels);
    const Image part = crop(image, 1, 2, 3, 4);
    ASSERT_EQ(part.height, 3);
    ASSERT_EQ(part.width, 4);
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t i = 0; i < 4 * channels; ++i) {
        EXPECT_EQ(part.row(y)[i], image.row(1 + y)[2 * channels + i]);
      }
    EXPECT_EQ(crop(image, 0, 0, 5, 7).pixels, image.pixels);
  }
}

TEST(Crop, MustLieInside) {
  const Image image = places(5, 7, 3);
  const auto said = [&](int64_t top, int64_t left, int64_t height, int64_t width) {
    return complaint([&] { crop(image, top, left, height, width); });
  };
  EXPECT_EQ(said(3, 0, 3, 7),
            "crop: the rectangle must lie in the picture of 7 x 5 (width x height), got 7 x 3 at "
            "left 0, top 3");
  EXPECT_NE(said(0, 1, 5, 7), "");
  EXPECT_NE(said(-1, 0, 2, 2), "");
  EXPECT_NE(said(0, -1, 2, 2), "");
  EXPECT_NE(said(0, 0, 0, 2), "");
  EXPECT_NE(said(0, 0, 2, 0), "");
  EXPECT_NE(said(INT64_MAX, 0, INT64_MAX, 2), "");
  EXPECT_NE(said(0, INT64_MAX, 2, INT64_MAX), "");
}

// torchvision: top = int(round((height - crop) / 2.0)), where 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, 3.5
// -> 4.
TEST(CenterCrop, RoundsHalvesToEven) {
  const int64_t starts[] = {0, 0, 1, 2, 2, 2, 3, 4, 4};
  for (int64_t more = 0; more <= 8; ++more) {
    const Image tall = places(2 + more, 3, 1);
    EXPECT_EQ(center_crop(tall, 2, 3).pixels, crop(tall, starts[more], 0, 2, 3).pixels) << more;
    const Image wide = places(3, 2 + more, 1);
    EXPECT_EQ(center_crop(wide, 3, 2).pixels, crop(wide, 0, starts[more], 3, 2).pixels) << more;
  }
}

// torchvision pads (crop - size) // 2 before and one more behind if that is odd.
TEST(CenterCrop, PadsWithBlack) {
  const Image image = center_crop(places(1, 2, 1), 4, 5);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{0, 0,  0,  0, 0,  //
                                                0, 11, 12, 0, 0,  //
                                                0, 0,  0,  0, 0,  //
                                                0, 0,  0,  0, 0}));
}

TEST(CenterCrop, PadsOneAxisAndCropsTheOther) {
  const Image image = center_crop(places(1, 5, 1), 2, 2);  // columns from round(1.5) = 2
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{13, 14, 0, 0}));
}

TEST(CenterCrop, SizeIsChecked) {
  const Image image = places(2, 2, 1);
  EXPECT_EQ(complaint([&] { center_crop(image, 0, 2); }),
            "center_crop: height and width must be in [1, 16777216], got 0 and 2");
  EXPECT_NE(complaint([&] { center_crop(image, 2, INT64_MAX); }), "");
}

TEST(Flip, SwapsLeftAndRight) {
  EXPECT_EQ(flip(places(2, 3, 1)).pixels, (std::vector<uint8_t>{13, 12, 11, 23, 22, 21}));
  const Image image = noise(4, 5, 3);
  const Image flipped = flip(image);
  for (int64_t x = 0; x < 5; ++x)
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(flipped.row(2)[3 * x + c], image.row(2)[3 * (4 - x) + c]);
    }
}

}  // namespace
}  // namespace qna::image
