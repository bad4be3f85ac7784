// Pillow's changes of tone, strength and place to the bit, by every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "hwy/highway.h"
#include "qna/image/affine.h"
#include "qna/image/enhance.h"
#include "qna/image/golden_testonly.h"
#include "qna/image/tone.h"

namespace qna::image {
namespace {

using namespace testing;

constexpr Color kFill = {124, 116, 104};

Image change(const std::string& name, const Image& image, const std::vector<double>& numbers,
             Filter filter) {
  const double number = numbers.empty() ? 0 : numbers[0];
  const int whole = static_cast<int>(number);
  if (name == "autocontrast") return autocontrast(image);
  if (name == "equalize") return equalize(image);
  if (name == "invert") return invert(image);
  if (name == "posterize") return posterize(image, whole);
  if (name == "solarize") return solarize(image, whole);
  if (name == "solarize_add") return solarize_add(image, whole);
  if (name == "brightness") return brightness(image, number);
  if (name == "contrast") return contrast(image, number);
  if (name == "saturation") return saturation(image, number);
  if (name == "sharpness") return sharpness(image, number);
  if (name == "rotate") return rotate(image, number, filter, kFill);
  if (name == "shear_x") return shear_x(image, number, filter, kFill);
  if (name == "shear_y") return shear_y(image, number, filter, kFill);
  if (name == "translate_x") return translate_x(image, number, filter, kFill);
  if (name == "translate_y") return translate_y(image, number, filter, kFill);
  const std::vector<double>& n = numbers;
  return affine(image, {n.at(0), n.at(1), n.at(2), n.at(3), n.at(4), n.at(5)}, filter, kFill);
}

// tests/images/change.txt: single pixels, rows and columns, tails, both ends of every argument.
void compare_changes_with_pillow() {
  std::ifstream table(image_path("change.txt"));
  int64_t height, width, channels;
  std::string kind, name, filter, expected;
  size_t count;
  std::map<std::string, int> seen;
  while (table >> height >> width >> channels >> kind >> name >> filter >> count) {
    std::vector<double> numbers(count);
    for (double& number : numbers) table >> number;
    table >> expected;
    Image image = noise(height, width, channels);
    if (kind == "dim") {
      for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel / 3 + 40);
    }
    const Image changed =
        change(name, image, numbers, filter == "bicubic" ? Filter::kBicubic : Filter::kBilinear);
    ASSERT_EQ(changed.height, height);
    ASSERT_EQ(changed.width, width);
    ASSERT_EQ(changed.channels, channels);
    EXPECT_EQ(hash(changed.pixels), expected)
        << name << " " << filter << " " << fmt::format("{}", fmt::join(numbers, " ")) << " of "
        << height << " x " << width << " x " << channels << " " << kind;
    ++seen[name];
  }
  EXPECT_TRUE(table.eof());
  EXPECT_EQ(seen.size(), 16u);
  for (const auto& [change_name, cases] : seen) EXPECT_GE(cases, 40) << change_name;
}

TEST(Change, EqualsPillowByAllInstructionSets) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    compare_changes_with_pillow();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Change, OneColourStaysWhereNothingIsOutside) {
  for (const int value : {0, 1, 77, 254, 255}) {
    Image image = make_image(9, 14, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(value));
    const uint8_t v = static_cast<uint8_t>(value);
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      EXPECT_EQ(rotate(image, 33, filter, {v, v, v}).pixels, image.pixels);
      EXPECT_EQ(shear_x(image, 0.3, filter, {v, v, v}).pixels, image.pixels);
      EXPECT_EQ(translate_y(image, 0.21, filter, {v, v, v}).pixels, image.pixels);
    }
    for (const double factor : {0.0, 0.3, 1.9}) {
      EXPECT_EQ(contrast(image, factor).pixels, image.pixels);
      EXPECT_EQ(saturation(image, factor).pixels, image.pixels);
      EXPECT_EQ(sharpness(image, factor).pixels, image.pixels);
    }
    EXPECT_EQ(autocontrast(image).pixels, image.pixels);
    EXPECT_EQ(equalize(image).pixels, image.pixels);
  }
}

TEST(Change, GreyHasNoSaturation) {
  const Image image = noise(5, 6, 1);
  EXPECT_EQ(saturation(image, 0).pixels, image.pixels);
}

TEST(ChangeErrors, AreNamed) {
  const Image image = noise(4, 6, 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto said = [](auto&& call) { return complaint([&] { call(); }); };
  const Filter filter = Filter::kBicubic;
  EXPECT_EQ(said([&] { posterize(image, 9); }), "posterize: bits must be in [0, 8], got 9");
  EXPECT_EQ(said([&] { posterize(image, -1); }), "posterize: bits must be in [0, 8], got -1");
  EXPECT_EQ(said([&] { solarize(image, 257); }),
            "solarize: threshold must be in [0, 256], got 257");
  EXPECT_EQ(said([&] { solarize_add(image, -1); }),
            "solarize_add: amount must be in [0, 255], got -1");
  EXPECT_EQ(said([&] { brightness(image, nan); }), "brightness: factor must be finite, got nan");
  EXPECT_EQ(said([&] { contrast(image, 1e200); }), "contrast: factor must be finite, got 1e+200");
  EXPECT_EQ(said([&] { saturation(image, infinity); }),
            "saturation: factor must be finite, got inf");
  EXPECT_EQ(said([&] { sharpness(image, nan); }), "sharpness: factor must be finite, got nan");
  EXPECT_EQ(said([&] { rotate(image, nan, filter, kFill); }),
            "rotate: degrees must be finite, got nan");
  EXPECT_EQ(said([&] { shear_x(image, nan, filter, kFill); }),
            "shear_x: factor must be finite, got nan");
  EXPECT_EQ(said([&] { translate_y(image, infinity, filter, kFill); }),
            "translate_y: share must be finite, got inf");
  EXPECT_EQ(said([&] {
              affine(image, {1, 0, nan, 0, 1, 0}, filter, kFill);
            }),
            "affine: map must be finite, got nan");
  EXPECT_EQ(said([&] {
              affine(image, {1, 0, 0, 0, 1, 0}, static_cast<Filter>(7), kFill);
            }),
            "affine: filter must be one of Filter, got 7");
}

TEST(ChangeErrors, BrokenImage) {
  Image image = noise(4, 6, 3);
  image.pixels.pop_back();
  const std::string rule = ": a picture of 4 x 6 x 3 must have 72 bytes of pixels, got 71";
  for (const std::string name :
       {"autocontrast", "equalize", "invert", "posterize", "solarize", "solarize_add", "brightness",
        "contrast", "saturation", "sharpness"}) {
    EXPECT_EQ(complaint([&] { change(name, image, {1}, Filter::kBilinear); }), name + rule);
  }
  for (const std::string name : {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}) {
    EXPECT_EQ(complaint([&] { change(name, image, {1}, Filter::kBilinear); }), "affine" + rule);
  }
}

}  // namespace
}  // namespace qna::image
