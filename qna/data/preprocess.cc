#include "qna/data/preprocess.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/image/crop.h"

namespace qna::data {
namespace {

using image::Image;
using image::kMaxSide;

bool has_crop(const Preprocess& preprocess) { return preprocess.crop[0] != 0; }

std::array<int64_t, 2> size_before_crop(std::array<int64_t, 2> size, const Preprocess& preprocess) {
  if (preprocess.resize == 0) return size;
  return resized_size(size, preprocess.resize, preprocess.longest);
}

}  // namespace

std::array<int64_t, 2> resized_size(std::array<int64_t, 2> size, int64_t shorter, int64_t longest) {
  const auto is_side = [](int64_t length) { return length >= 1 && length <= kMaxSide; };
  check(is_side(size[0]) && is_side(size[1]),
        "resized_size: height and width must be in [1, {}], got {} and {}", kMaxSide, size[0],
        size[1]);
  check(is_side(shorter), "resized_size: shorter must be in [1, {}], got {}", kMaxSide, shorter);
  check(longest == 0 || is_side(longest), "resized_size: longest must be in [0, {}], got {}",
        kMaxSide, longest);
  const auto [low, high] = std::minmax(size[0], size[1]);
  const double low_length = static_cast<double>(low);
  const double high_length = static_cast<double>(high);
  const double limit = static_cast<double>(longest);
  if (longest > 0 && high_length / low_length * static_cast<double>(shorter) > limit) {
    shorter = std::llrint(limit * low_length / high_length);
    // So long and thin that nothing would be left.
    if (shorter == 0) return {size[0] == low ? 1 : longest, size[0] == low ? longest : 1};
  }
  return {size[0] * shorter / low, size[1] * shorter / low};
}

std::array<int64_t, 2> output_size(std::array<int64_t, 2> size, const Preprocess& preprocess) {
  config::check_preprocess(preprocess, "output_size");
  check(size[0] >= 1 && size[0] <= kMaxSide && size[1] >= 1 && size[1] <= kMaxSide,
        "output_size: height and width must be in [1, {}], got {} and {}", kMaxSide, size[0],
        size[1]);
  return has_crop(preprocess) ? preprocess.crop : size_before_crop(size, preprocess);
}

Image fit(const Image& image, const Preprocess& preprocess) {
  config::check_preprocess(preprocess, "fit");
  check_image(image, "fit");
  check(image.channels == preprocess.channels(),
        "fit: the picture must have as many channels as mean, {}, got {}", preprocess.channels(),
        image.channels);
  const auto [height, width] = size_before_crop({image.height, image.width}, preprocess);
  Image out = image::resize(image, height, width, preprocess.filter);
  if (!has_crop(preprocess)) return out;
  return image::center_crop(out, preprocess.crop[0], preprocess.crop[1]);
}

void to_floats(const Image& image, const Preprocess& preprocess, float* out, int64_t row_floats) {
  config::check_preprocess(preprocess, "to_floats");
  check_image(image, "to_floats");
  check(image.channels == preprocess.channels(),
        "to_floats: the picture must have as many channels as mean, {}, got {}",
        preprocess.channels(), image.channels);
  // A channel has only 256 values.
  std::array<std::array<float, 256>, 3> table;
  const int64_t channels = image.channels;
  for (int64_t c = 0; c < channels; ++c)
    for (int value = 0; value < 256; ++value) {
      table[c][value] =
          (static_cast<float>(value) / 255.0f - preprocess.mean[c]) / preprocess.std[c];
    }
  if (row_floats == 0) row_floats = image.row_bytes();
  check(row_floats >= image.row_bytes(), "to_floats: row_floats must be 0 or at least {}, got {}",
        image.row_bytes(), row_floats);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* in = image.row(y);
    float* to = out + y * row_floats;
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t c = 0; c < channels; ++c) *to++ = table[c][*in++];
  }
}

}  // namespace qna::data
