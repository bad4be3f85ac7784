#include "qna/data/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/rand_augment.h"
#include "qna/image/crop.h"
#include "qna/image/enhance.h"

namespace qna::data {
namespace {

using image::Image;
using image::kMaxSide;

constexpr int kTries = 10;

bool is_whole(const Augment& options) {
  return options.crop_scale[0] == 1 && options.crop_scale[1] == 1;
}

// Python's round: halves go to the even number.
int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

// As the parameters of torchvision's RandomResizedCrop.
View random_part(int64_t height, int64_t width, const Augment& options, Random& random) {
  const double area = static_cast<double>(height * width);
  const auto [low_ratio, high_ratio] = options.crop_ratio;
  for (int i = 0; i < kTries; ++i) {
    const double part_area = area * random.uniform(options.crop_scale[0], options.crop_scale[1]);
    const double ratio = std::exp(random.uniform(std::log(low_ratio), std::log(high_ratio)));
    const double part_width = std::nearbyint(std::sqrt(part_area * ratio));
    const double part_height = std::nearbyint(std::sqrt(part_area / ratio));
    if (part_width >= 1 && part_width <= static_cast<double>(width) && part_height >= 1 &&
        part_height <= static_cast<double>(height)) {
      const int64_t w = static_cast<int64_t>(part_width);
      const int64_t h = static_cast<int64_t>(part_height);
      const int64_t top = random.below(height - h + 1);
      const int64_t left = random.below(width - w + 1);
      return {top, left, h, w, false};
    }
  }
  // The largest part in the middle whose ratio is allowed; at least one pixel of it.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width;
  int64_t h = height;
  if (ratio < low_ratio) {
    h = std::clamp<int64_t>(rounded(static_cast<double>(width) / low_ratio), 1, height);
  } else if (ratio > high_ratio) {
    w = std::clamp<int64_t>(rounded(static_cast<double>(height) * high_ratio), 1, width);
  }
  return {(height - h) / 2, (width - w) / 2, h, w, false};
}

Image resized_part(const Image& image, const Augment& options, const View& part) {
  const auto [height, width] = options.size;
  // Cut first: a box of resize would look beyond the edges of the part.
  return image::resize(image::crop(image, part.top, part.left, part.height, part.width), height,
                       width, options.filter);
}

// Without the outermost pixel twice: -1 is 1, and `size` is size - 2.
int64_t reflected(int64_t i, int64_t size) {
  i = std::abs(i);
  return i < size ? i : 2 * (size - 1) - i;
}

// The part at (top, left) of an image with a reflected margin of `pad` pixels, never built whole.
Image shifted(const Image& image, int64_t pad, int64_t top, int64_t left) {
  if (top == pad && left == pad) return image;
  Image out = image::make_image(image.height, image.width, image.channels);
  std::vector<int64_t> columns(image.width);
  for (int64_t x = 0; x < image.width; ++x) {
    columns[x] = reflected(x + left - pad, image.width) * image.channels;
  }
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* from = image.row(reflected(y + top - pad, image.height));
    uint8_t* to = out.row(y);
    for (const int64_t column : columns) to = std::copy_n(from + column, image.channels, to);
  }
  return out;
}

Image padded_part(const Image& image, const Augment& options, Random& random) {
  const int64_t top = random.below(2 * options.pad + 1);
  const int64_t left = random.below(2 * options.pad + 1);
  return shifted(image::resize(image, options.size[0], options.size[1], options.filter),
                 options.pad, top, left);
}

// What is seen of the image, at the size wanted.
Image seen_part(const Image& image, const Augment& options, Random& random, const View* view) {
  if (view != nullptr) {
    Image out = resized_part(image, options, *view);
    return view->mirrored ? image::flip(out) : out;
  }
  Image out =
      options.pad > 0
          ? padded_part(image, options, random)
          : resized_part(image, options, random_part(image.height, image.width, options, random));
  return random.chance(options.flip) ? image::flip(out) : out;
}

// NaN fails, too.
bool is_in(double value, double low, double high) { return value >= low && value <= high; }

void check_rand_augment(const RandAugment& options, const char* where) {
  const auto& [ops, magnitude, std, probability] = options;
  check(ops >= 0 && ops <= 100, "{}: rand_augment.ops must be in [0, 100], got {}", where, ops);
  check(is_in(magnitude, 0, 10), "{}: rand_augment.magnitude must be in [0, 10], got {}", where,
        magnitude);
  check(is_in(std, 0, 100), "{}: rand_augment.std must be in [0, 100], got {}", where, std);
  check(is_in(probability, 0, 1), "{}: rand_augment.probability must be in [0, 1], got {}", where,
        probability);
}

}  // namespace

void check_augment(const Augment& augment, const char* where) {
  const auto& [size, scale, ratio, pad, filter, flip, rand_augment, jitter, erase, fill] = augment;
  check(size[0] >= 1 && size[0] <= kMaxSide && size[1] >= 1 && size[1] <= kMaxSide,
        "{}: size must be two numbers in [1, {}], got {}, {}", where, kMaxSide, size[0], size[1]);
  check(scale[0] > 0 && scale[0] <= scale[1] && scale[1] <= 1,
        "{}: crop_scale must be two rising numbers above 0 and up to 1, got {}, {}", where,
        scale[0], scale[1]);
  check(ratio[0] >= 1e-3 && ratio[0] <= ratio[1] && ratio[1] <= 1e3,
        "{}: crop_ratio must be two rising numbers in [0.001, 1000], got {}, {}", where, ratio[0],
        ratio[1]);
  check(pad >= 0 && pad < std::min(size[0], size[1]),
        "{}: pad must be at least 0 and less than size, {} x {}, got {}", where, size[0], size[1],
        pad);
  check(pad == 0 || is_whole(augment), "{}: pad must be 0 unless crop_scale is 1, 1, got {}", where,
        pad);
  check(filter == image::Filter::kBilinear || filter == image::Filter::kBicubic,
        "{}: filter must be one of Filter, got {}", where, static_cast<int>(filter));
  check(is_in(flip, 0, 1), "{}: flip must be in [0, 1], got {}", where, flip);
  if (rand_augment) check_rand_augment(*rand_augment, where);
  check(is_in(jitter, 0, 100), "{}: color_jitter must be in [0, 100], got {}", where, jitter);
  check(is_in(erase, 0, 1), "{}: erase must be in [0, 1], got {}", where, erase);
  for (const float f : fill) {
    check(is_in(f, 0, 1), "{}: fill must be numbers in [0, 1], got {}", where, f);
  }
}

Image augment(const Image& image, const Augment& options, Random& random, const View* view) {
  check_augment(options, "augment");
  image::check_image(image, "augment");
  Image out = seen_part(image, options, random, view);
  if (options.rand_augment) {
    image::Color fill;
    for (int c = 0; c < 3; ++c) {
      fill[c] = static_cast<uint8_t>(rounded(255 * static_cast<double>(options.fill[c])));
    }
    out = rand_augment(std::move(out), *options.rand_augment, options.filter, fill, random);
  }
  if (options.color_jitter > 0) out = color_jitter(std::move(out), options.color_jitter, random);
  return out;
}

Image color_jitter(Image image, double amount, Random& random) {
  const double low = std::max(0.0, 1 - amount);
  std::array<Image (*)(Image, double), 3> changes = {image::brightness, image::contrast,
                                                     image::saturation};
  std::array<double, 3> factors;
  for (double& factor : factors) factor = random.uniform(low, 1 + amount);
  std::array<int, 3> order = {0, 1, 2};
  for (int i = 2; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (const int i : order) image = changes[i](std::move(image), factors[i]);
  return image;
}

void erase(float* pixels, int64_t height, int64_t width, int64_t channels, double probability,
           Random& random) {
  check(height >= 1 && width >= 1 && channels >= 1 && height <= kMaxSide && width <= kMaxSide,
        "erase: height, width and channels must be at least 1 and sides at most {}, got {}, {}, {}",
        kMaxSide, height, width, channels);
  check(is_in(probability, 0, 1), "erase: probability must be in [0, 1], got {}", probability);
  if (!random.chance(probability)) return;
  const double log_aspect = std::log(1 / 0.3);
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(height * width) * random.uniform(0.02, 1. / 3);
    const double aspect = std::exp(random.uniform(-log_aspect, log_aspect));
    const int64_t h = rounded(std::sqrt(area * aspect));
    const int64_t w = rounded(std::sqrt(area / aspect));
    if (h >= height || w >= width) continue;
    const int64_t top = random.below(height - h + 1);
    const int64_t left = random.below(width - w + 1);
    for (int64_t y = top; y < top + h; ++y) {
      random.normals(pixels + (y * width + left) * channels, w * channels);
    }
    return;
  }
}

}  // namespace qna::data
