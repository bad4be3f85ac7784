#include "qna/data/mix.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"

namespace qna::data {
namespace {

// a = share a + (1 - share) b and b = share b + (1 - share) a.
void blend(float* a, float* b, int64_t size, float share) {
  const float rest = 1 - share;
  for (int64_t i = 0; i < size; ++i) {
    const float first = a[i];
    const float second = b[i];
    a[i] = first * share + second * rest;
    b[i] = second * share + first * rest;
  }
}

// A rectangle of (1 - share) of the area around a random pixel, cut off at the edges.
struct Rectangle {
  Rectangle(int64_t height, int64_t width, double share, Random& random) {
    const double side = std::sqrt(1 - share);
    cut(top, bottom, height, side, random);
    cut(left, right, width, side, random);
  }
  static void cut(int64_t& begin, int64_t& end, int64_t size, double side, Random& random) {
    const int64_t length = static_cast<int64_t>(static_cast<double>(size) * side);
    const int64_t middle = random.below(size);
    begin = std::max<int64_t>(middle - length / 2, 0);
    end = std::min(middle + (length + 1) / 2, size);
  }
  double area() const { return static_cast<double>((bottom - top) * (right - left)); }

  int64_t top, bottom, left, right;
};

}  // namespace

void check_mix(const Mix& mix, const char* where) {
  const auto& [mixup, cutmix, probability, switch_probability] = mix;
  check(std::isfinite(mixup) && mixup >= 0, "{}: mixup must be finite and at least 0, got {}",
        where, mixup);
  check(std::isfinite(cutmix) && cutmix >= 0, "{}: cutmix must be finite and at least 0, got {}",
        where, cutmix);
  check(probability >= 0 && probability <= 1, "{}: probability must be in [0, 1], got {}", where,
        probability);
  check(switch_probability >= 0 && switch_probability <= 1,
        "{}: switch_probability must be in [0, 1], got {}", where, switch_probability);
}

void mix(float* pixels, float* targets, int64_t count, int64_t height, int64_t width,
         int64_t channels, int64_t columns, const Mix& options, Random& random) {
  check_mix(options, "mix");
  check(count >= 0 && height >= 1 && width >= 1 && channels >= 1 && columns >= 1,
        "mix: sizes must be at least 1 (count 0), got count {}, height {}, width {}, channels {}, "
        "columns {}",
        count, height, width, channels, columns);
  if (options.mixup == 0 && options.cutmix == 0) return;
  if (!random.chance(options.probability)) return;
  const bool either = options.mixup > 0 && options.cutmix > 0;
  const bool cut = either ? random.chance(options.switch_probability) : options.cutmix > 0;
  double share = random.beta(cut ? options.cutmix : options.mixup);

  const int64_t image = height * width * channels;
  if (!cut) {
    for (int64_t i = 0; i + 1 < count; i += 2) {
      blend(pixels + i * image, pixels + (i + 1) * image, image, static_cast<float>(share));
    }
  } else {
    const Rectangle box(height, width, share, random);
    share = 1 - box.area() / static_cast<double>(height * width);
    const int64_t row = (box.right - box.left) * channels;
    for (int64_t i = 0; i + 1 < count; i += 2)
      for (int64_t y = box.top; y < box.bottom; ++y) {
        float* from = pixels + i * image + (y * width + box.left) * channels;
        std::swap_ranges(from, from + row, from + image);
      }
  }
  for (int64_t i = 0; i + 1 < count; i += 2) {
    blend(targets + i * columns, targets + (i + 1) * columns, columns, static_cast<float>(share));
  }
}

}  // namespace qna::data
