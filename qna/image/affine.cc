#include "qna/image/affine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <vector>

#include "qna/base/error.h"
#include "qna/image/affine_simd.h"

namespace qna::image {
namespace {

// Two more pixels on every side, copies of the outermost ones, so that no tap needs a check.
std::vector<uint8_t> with_margin(const Image& image) {
  const int64_t c = image.channels;
  const int64_t stride = (image.width + 2 * kAffineMargin) * c;
  std::vector<uint8_t> out((image.height + 2 * kAffineMargin) * stride + kAffineSlack);
  for (int64_t y = -kAffineMargin; y < image.height + kAffineMargin; ++y) {
    const uint8_t* row = image.row(std::clamp<int64_t>(y, 0, image.height - 1));
    uint8_t* to = out.data() + (y + kAffineMargin) * stride;
    for (int64_t x = 0; x < kAffineMargin; ++x) to = std::copy_n(row, c, to);
    to = std::copy_n(row, image.row_bytes(), to);
    for (int64_t x = 0; x < kAffineMargin; ++x)
      to = std::copy_n(row + image.row_bytes() - c, c, to);
  }
  return out;
}

// Python's round(value, 15), which is exact in decimals. |value| <= 1.
double round_to_15_digits(double value) {
  return std::strtod(fmt::format("{:.15f}", value).c_str(), nullptr);
}

double checked(double value, const char* where, const char* name) {
  check(std::isfinite(value), "{}: {} must be finite, got {}", where, name, value);
  return value;
}

}  // namespace

Image affine(const Image& image, const Affine& map, Filter filter, const Color& fill) {
  check_image(image, "affine");
  for (const double value : {map.a, map.b, map.c, map.d, map.e, map.f}) {
    checked(value, "affine", "map");
  }
  check(filter == Filter::kBilinear || filter == Filter::kBicubic,
        "affine: filter must be one of Filter, got {}", static_cast<int>(filter));
  Image out = make_image(image.height, image.width, image.channels);
  affine_pixels(out, with_margin(image).data(), map, filter, fill);
  return out;
}

Image rotate(const Image& image, double degrees, Filter filter, const Color& fill) {
  checked(degrees, "rotate", "degrees");
  // As Python's degrees % 360, which is never negative.
  double positive = std::fmod(degrees, 360.0);
  if (positive < 0) positive += 360.0;
  const double angle = -(positive * (std::numbers::pi / 180.0));
  const double cosine = round_to_15_digits(std::cos(angle));
  const double sine = round_to_15_digits(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2;
  const double y = static_cast<double>(image.height) / 2;
  const Affine map = {cosine, sine,   cosine * -x + sine * -y + 0.0 + x,
                      -sine,  cosine, -sine * -x + cosine * -y + 0.0 + y};
  return affine(image, map, filter, fill);
}

Image shear_x(const Image& image, double factor, Filter filter, const Color& fill) {
  return affine(image, {1, checked(factor, "shear_x", "factor"), 0, 0, 1, 0}, filter, fill);
}

Image shear_y(const Image& image, double factor, Filter filter, const Color& fill) {
  return affine(image, {1, 0, 0, checked(factor, "shear_y", "factor"), 1, 0}, filter, fill);
}

Image translate_x(const Image& image, double share, Filter filter, const Color& fill) {
  const double pixels = checked(share, "translate_x", "share") * static_cast<double>(image.width);
  return affine(image, {1, 0, pixels, 0, 1, 0}, filter, fill);
}

Image translate_y(const Image& image, double share, Filter filter, const Color& fill) {
  const double pixels = checked(share, "translate_y", "share") * static_cast<double>(image.height);
  return affine(image, {1, 0, 0, 0, 1, pixels}, filter, fill);
}

}  // namespace qna::image
