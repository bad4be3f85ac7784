// Sizes and roundings are torchvision's. The expected numbers follow from its formulas:
//   Resize:     int(size * longer / shorter)
//   CenterCrop: int(round((side - crop) / 2.0)), halves to even
#include "qna/data/preprocess.h"

#include <gtest/gtest.h>

#include <limits>

#include "qna/base/error.h"
#include "qna/image/crop.h"
#include "qna/image/resize.h"

namespace qna::data {
namespace {

using image::Image;
using image::make_image;
using Size = std::array<int64_t, 2>;

Image ramp(int64_t height, int64_t width, int64_t channels) {
  Image image = make_image(height, width, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 7);
  return image;
}

const Preprocess kResizeOnly = {.crop = {0, 0}};
const Preprocess kNothing = {.resize = 0, .crop = {0, 0}};

TEST(OutputSize, LongerSideIsRoundedDown) {
  const struct {
    Size in;
    Size out;
  } rows[] = {
      {{375, 500}, {256, 341}},                              // 341.33
      {{500, 375}, {341, 256}},   {{333, 500}, {256, 384}},  // 384.38
      {{256, 256}, {256, 256}},   {{256, 999}, {256, 999}},
      {{1, 1000}, {256, 256000}}, {{100, 199}, {256, 509}},  // 509.44
      {{1000, 1999}, {256, 511}},                            // 511.74
      {{3, 5}, {256, 426}},                                  // 426.67
  };
  for (const auto& row : rows) EXPECT_EQ(output_size(row.in, kResizeOnly), row.out);
}

// By DETR's get_size_with_aspect_ratio:
//   if longer / shorter * size > longest: size = int(round(longest * shorter / longer))
//   int(size * side / shorter)
TEST(OutputSize, ALimitOfTheLongerSideMakesBothShorter) {
  const struct {
    Size in;
    int64_t resize;
    int64_t longest;
    Size out;
  } rows[] = {
      {{480, 640}, 800, 1333, {800, 1066}},   // 1066.67: within the limit
      {{640, 480}, 800, 1333, {1066, 800}},   //
      {{480, 640}, 800, 800, {600, 800}},     //
      {{427, 640}, 800, 1000, {667, 999}},    // 667.19, then 999.72
      {{1000, 170}, 800, 1333, {1335, 227}},  // 226.61, then 1335.29: rounding exceeds the limit
      {{3, 2}, 800, 3, {3, 2}},               //
      {{5, 2}, 800, 10, {10, 4}},             //
      {{2, 4}, 9, 5, {2, 4}},                 // 2.5 goes to the even number
      {{2, 4}, 9, 7, {4, 8}},                 // 3.5 does, too
      {{1, 1000}, 800, 100, {1, 100}},        // 0.1, but an image has a pixel
      {{1000, 1}, 800, 100, {100, 1}},        //
  };
  for (const auto& row : rows) {
    EXPECT_EQ(resized_size(row.in, row.resize, row.longest), row.out);
    const Preprocess p{.resize = row.resize, .longest = row.longest, .crop = {0, 0}};
    EXPECT_EQ(output_size(row.in, p), row.out);
  }
  EXPECT_EQ(resized_size({480, 640}, 800, 0), (Size{800, 1066}));
  EXPECT_THROW(resized_size({0, 1}, 5, 5), Error);
  EXPECT_THROW(resized_size({1, 1}, 0, 5), Error);
  EXPECT_THROW(resized_size({1, 1}, 5, -1), Error);
}

TEST(OutputSize, IsThatOfTheCropIfThereIsOne) {
  EXPECT_EQ(output_size({375, 500}, {}), (Size{224, 224}));
  EXPECT_EQ(output_size({10, 10}, {.resize = 0, .crop = {20, 30}}), (Size{20, 30}));
  EXPECT_EQ(output_size({10, 12}, kNothing), (Size{10, 12}));
}

TEST(Fit, HasTheOutputSize) {
  for (const Size size : {Size{37, 50}, {50, 37}, {5, 5}, {24, 90}, {1, 3}})
    for (const Preprocess& p :
         {Preprocess{.resize = 24, .crop = {16, 20}}, Preprocess{.resize = 24, .crop = {0, 0}},
          Preprocess{.resize = 24, .longest = 31, .crop = {0, 0}},
          Preprocess{.resize = 0, .crop = {30, 40}}, kNothing}) {
      const Image image = fit(ramp(size[0], size[1], 3), p);
      EXPECT_EQ((Size{image.height, image.width}), output_size(size, p));
    }
}

TEST(Fit, ResizesThenCropsTheMiddle) {
  const Image image = ramp(30, 45, 3);
  for (const image::Filter filter : {image::Filter::kBilinear, image::Filter::kBicubic}) {
    const Image resized = resize(image, 20, 30, filter);
    // Rows from round(3.5) = 4, columns from round(12.5) = 12.
    EXPECT_EQ(fit(image, {.resize = 20, .crop = {13, 5}, .filter = filter}).pixels,
              crop(resized, 4, 12, 13, 5).pixels);
  }
  EXPECT_EQ(fit(image, kNothing).pixels, image.pixels);
}

TEST(Fit, PadsWhatIsSmallerThanTheCrop) {
  const Image image = fit(ramp(1, 1, 1), {.resize = 0, .crop = {2, 3}, .mean = {0}, .std = {1}});
  EXPECT_EQ(image.pixels, std::vector<uint8_t>(6, 0));  // the pixel of ramp is 0 too
  const Image two = fit(ramp(1, 2, 1), {.resize = 0, .crop = {1, 4}, .mean = {0}, .std = {1}});
  EXPECT_EQ(two.pixels, (std::vector<uint8_t>{0, 0, 7, 0}));
}

TEST(ToFloats, NormalisesEveryChannel) {
  const Preprocess p;
  Image image = make_image(2, 256, 3);
  for (int64_t y = 0; y < 2; ++y)
    for (int64_t x = 0; x < 256; ++x)
      for (int64_t c = 0; c < 3; ++c)
        image.row(y)[3 * x + c] = static_cast<uint8_t>(x + 50 * c + y);
  std::vector<float> out(image.pixels.size());
  to_floats(image, p, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t c = i % 3;
    EXPECT_EQ(out[i], (static_cast<float>(image.pixels[i]) / 255.0f - p.mean[c]) / p.std[c]) << i;
  }
}

TEST(ToFloats, RowsMayStandApart) {
  const Image image = ramp(3, 4, 3);
  std::vector<float> dense(3 * 4 * 3);
  to_floats(image, {}, dense.data());
  std::vector<float> apart(3 * 20, -9.0f);
  to_floats(image, {}, apart.data(), 20);
  for (int64_t y = 0; y < 3; ++y)
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(apart[y * 20 + i], i < 12 ? dense[y * 12 + i] : -9.0f);
    }
  EXPECT_THROW(to_floats(image, {}, apart.data(), 11), Error);
}

TEST(ToFloats, KnownNumbers) {
  Image image = make_image(1, 2, 1);
  image.pixels = {0, 255};
  float out[2];
  to_floats(image, {.mean = {0.5f}, .std = {0.25f}}, out);
  EXPECT_EQ(out[0], -2.0f);
  EXPECT_EQ(out[1], 2.0f);
}

std::string complaint(const Preprocess& preprocess) {
  try {
    check_preprocess(preprocess, "p.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CheckPreprocess, NamesFieldRuleAndValue) {
  EXPECT_EQ(complaint({}), "");
  EXPECT_EQ(complaint(kNothing), "");
  EXPECT_EQ(complaint({.resize = -1}), "p.json: resize must be in [0, 16777216], got -1");
  EXPECT_EQ(complaint({.longest = -1}), "p.json: longest must be in [0, 16777216], got -1");
  EXPECT_EQ(complaint({.resize = 0, .longest = 5}),
            "p.json: longest must be 0 where resize is 0, got 5");
  const std::string crop =
      "p.json: crop must be two numbers in [1, 16777216], or 0, 0 for none, got ";
  EXPECT_EQ(complaint({.crop = {0, 224}}), crop + "0, 224");
  EXPECT_EQ(complaint({.crop = {224, 0}}), crop + "224, 0");
  EXPECT_EQ(complaint({.crop = {-1, -1}}), crop + "-1, -1");
  EXPECT_EQ(complaint({.filter = static_cast<image::Filter>(7)}),
            "p.json: filter must be one of Filter, got 7");
  EXPECT_EQ(complaint({.mean = {0, 0}, .std = {1, 1}}),
            "p.json: mean must have 1 or 3 numbers, got 2");
  EXPECT_EQ(complaint({.mean = {0}, .std = {1, 1, 1}}),
            "p.json: std must have as many numbers as mean, 1, got 3");
  EXPECT_EQ(complaint({.mean = {0}, .std = {0}}), "p.json: std must be finite and above 0, got 0");
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(complaint({.mean = {nan}, .std = {1}}), "p.json: mean must be finite, got nan");
  EXPECT_NE(complaint({.mean = {0}, .std = {nan}}), "");
}

TEST(Preprocess, ChannelsMustAgree) {
  const Image grey = ramp(4, 4, 1);
  EXPECT_THROW(fit(grey, {}), Error);
  float out[16];
  EXPECT_THROW(to_floats(grey, {}, out), Error);
  EXPECT_THROW(output_size({0, 4}, {}), Error);
}

}  // namespace
}  // namespace qna::data
