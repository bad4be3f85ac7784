#include "qna/image/enhance.h"

#include <cmath>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/image/enhance_simd.h"
#include "qna/image/lookup.h"

namespace qna::image {
namespace {

float checked_factor(const Image& image, double factor, const char* where) {
  check_image(image, where);
  const float rounded = static_cast<float>(factor);
  check(std::isfinite(rounded), "{}: factor must be finite, got {}", where, factor);
  return rounded;
}

Image blend_with(Image image, int plain, float factor) {
  return look_up(std::move(image),
                 make_lookup([&](int value) { return blend(plain, value, factor); }));
}

int mean_luma(const Image& image) {
  const int64_t pixels = image.height * image.width;
  int64_t sum = 0;
  const uint8_t* pixel = image.pixels.data();
  if (image.channels == 1) {
    for (int64_t i = 0; i < pixels; ++i) sum += pixel[i];
  } else {
    for (int64_t i = 0; i < pixels; ++i) sum += luma(pixel + 3 * i);
  }
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
}

}  // namespace

Image brightness(Image image, double factor) {
  const float alpha = checked_factor(image, factor, "brightness");
  return blend_with(std::move(image), 0, alpha);
}

Image contrast(Image image, double factor) {
  const float alpha = checked_factor(image, factor, "contrast");
  const int mean = mean_luma(image);
  return blend_with(std::move(image), mean, alpha);
}

Image saturation(Image image, double factor) {
  const float alpha = checked_factor(image, factor, "saturation");
  if (image.channels == 3) blend_with_luma(image, alpha);
  return image;
}

Image sharpness(const Image& image, double factor) {
  const float alpha = checked_factor(image, factor, "sharpness");
  Image out = image;
  if (image.height >= 3 && image.width >= 3) blend_with_smooth(out, image, alpha);
  return out;
}

}  // namespace qna::image
