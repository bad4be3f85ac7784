#include "qna/image/tone.h"

#include <algorithm>
#include <vector>

#include "qna/base/error.h"
#include "qna/image/lookup.h"

namespace qna::image {
namespace {

using Histogram = std::array<int64_t, 256>;

// Neighbours are often equal; two counters per value keep one from waiting for the other.
std::vector<Histogram> histograms(const Image& image) {
  std::array<std::array<std::array<uint32_t, 256>, 2>, 3> counts{};
  std::vector<Histogram> sums(image.channels, Histogram{});
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.row(y);
    if (image.channels == 1) {
      for (int64_t x = 0; x < image.width; ++x) ++counts[0][x & 1][row[x]];
    } else {
      for (int64_t x = 0; x < image.width; ++x, row += 3) {
        for (int c = 0; c < 3; ++c) ++counts[c][x & 1][row[c]];
      }
    }
    // 64 rows of at most 2^24 pixels fit 32 bits.
    if (y % 64 != 63 && y + 1 != image.height) continue;
    for (int64_t c = 0; c < image.channels; ++c)
      for (auto& part : counts[c])
        for (int value = 0; value < 256; ++value) {
          sums[c][value] += part[value];
          part[value] = 0;
        }
  }
  return sums;
}

Lookup unchanged() {
  return make_lookup([](int value) { return value; });
}

Lookup stretch(const Histogram& histogram) {
  int low = 0;
  int high = 255;
  while (histogram[low] == 0) ++low;
  while (histogram[high] == 0) --high;
  if (high <= low) return unchanged();
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  return make_lookup(
      [&](int value) { return std::clamp(static_cast<int>(value * scale + offset), 0, 255); });
}

Lookup spread(const Histogram& histogram) {
  int64_t pixels = 0;
  int64_t lightest = 0;
  for (const int64_t count : histogram) {
    pixels += count;
    if (count != 0) lightest = count;
  }
  const int64_t step = (pixels - lightest) / 255;
  if (step == 0) return unchanged();
  int64_t darker = step / 2;
  return make_lookup([&](int value) {
    const int64_t level = darker / step;
    darker += histogram[value];
    return std::min<int64_t>(level, 255);
  });
}

Image change_channels(Image image, Lookup (*change)(const Histogram&)) {
  std::vector<Lookup> tables;
  for (const Histogram& histogram : histograms(image)) tables.push_back(change(histogram));
  return look_up(std::move(image), tables);
}

}  // namespace

Image autocontrast(Image image) {
  check_image(image, "autocontrast");
  return change_channels(std::move(image), stretch);
}

Image equalize(Image image) {
  check_image(image, "equalize");
  return change_channels(std::move(image), spread);
}

Image invert(Image image) {
  check_image(image, "invert");
  return look_up(std::move(image), make_lookup([](int value) { return 255 - value; }));
}

Image posterize(Image image, int bits) {
  check_image(image, "posterize");
  check(bits >= 0 && bits <= 8, "posterize: bits must be in [0, 8], got {}", bits);
  const int mask = 0xff00 >> bits;
  return look_up(std::move(image), make_lookup([&](int value) { return value & mask; }));
}

Image solarize(Image image, int threshold) {
  check_image(image, "solarize");
  check(threshold >= 0 && threshold <= 256, "solarize: threshold must be in [0, 256], got {}",
        threshold);
  return look_up(std::move(image),
                 make_lookup([&](int value) { return value < threshold ? value : 255 - value; }));
}

Image solarize_add(Image image, int amount) {
  check_image(image, "solarize_add");
  check(amount >= 0 && amount <= 255, "solarize_add: amount must be in [0, 255], got {}", amount);
  return look_up(std::move(image), make_lookup([&](int value) {
                   return value < 128 ? std::min(255, value + amount) : value;
                 }));
}

}  // namespace qna::image
