#include "qna/data/detection_augment.h"

#include <algorithm>
#include <utility>

#include "qna/base/error.h"
#include "qna/data/augment.h"
#include "qna/image/crop.h"

namespace qna::data {
namespace {

using image::kMaxSide;

// Of an image on its way: a long thin one becomes huge when its shorter side grows.
constexpr int64_t kMaxPixels = int64_t{1} << 28;

bool is_side(int64_t length) { return length >= 1 && length <= kMaxSide; }

void check_lengths(const std::vector<int64_t>& lengths, const char* field, const char* where) {
  check(!lengths.empty(), "{}: {} must have at least one length, got none", where, field);
  for (const int64_t length : lengths) {
    check(is_side(length), "{}: {} must be lengths in [1, {}], got {}", where, field, kMaxSide,
          length);
  }
}

DetectionSample resize_to_one_of(const DetectionSample& sample, const std::vector<int64_t>& lengths,
                                 int64_t longest, image::Filter filter, Random& random) {
  const int64_t shorter = lengths[random.below(static_cast<int64_t>(lengths.size()))];
  const auto [height, width] =
      resized_size({sample.image.height, sample.image.width}, shorter, longest);
  return resize(sample, height, width, filter);
}

// A length between the two, or of the side if that is less.
int64_t random_length(int64_t side, const std::array<int64_t, 2>& range, Random& random) {
  const int64_t low = std::min(range[0], side);
  return low + random.below(std::min(range[1], side) - low + 1);
}

// As DETR's RandomSizeCrop.
DetectionSample random_crop(const DetectionSample& sample, const std::array<int64_t, 2>& range,
                            Random& random) {
  const int64_t width = random_length(sample.image.width, range, random);
  const int64_t height = random_length(sample.image.height, range, random);
  const int64_t top = random.below(sample.image.height - height + 1);
  const int64_t left = random.below(sample.image.width - width + 1);
  return crop(sample, top, left, height, width);
}

}  // namespace

void check_augment(const DetectionAugment& augment, const char* where) {
  const auto& [flip, shorter, longest, crop, crop_shorter, size, filter, jitter] = augment;
  check(flip >= 0 && flip <= 1, "{}: flip must be in [0, 1], got {}", where, flip);
  check_lengths(shorter, "shorter", where);
  check(longest == 0 || is_side(longest), "{}: longest must be in [0, {}], got {}", where, kMaxSide,
        longest);
  check(crop >= 0 && crop <= 1, "{}: crop must be in [0, 1], got {}", where, crop);
  check_lengths(crop_shorter, "crop_shorter", where);
  check(is_side(size[0]) && is_side(size[1]) && size[0] <= size[1],
        "{}: crop_size must be two rising lengths in [1, {}], got {}, {}", where, kMaxSide, size[0],
        size[1]);
  check(filter == image::Filter::kBilinear || filter == image::Filter::kBicubic,
        "{}: filter must be one of Filter, got {}", where, static_cast<int>(filter));
  check(jitter >= 0 && jitter <= 100, "{}: color_jitter must be in [0, 100], got {}", where,
        jitter);
}

std::vector<LabelledBox> scaled(std::vector<LabelledBox> objects, std::array<int64_t, 2> from,
                                std::array<int64_t, 2> to) {
  if (from == to) return objects;
  const auto map = [](double place, int64_t from, int64_t to) {
    return std::min(place * static_cast<double>(to) / static_cast<double>(from),
                    static_cast<double>(to));
  };
  for (LabelledBox& object : objects)
    for (size_t i = 0; i < 4; ++i) {
      const size_t side = i % 2 == 0 ? 1 : 0;  // left and right go with the width
      object.box[i] = map(object.box[i], from[side], to[side]);
    }
  return objects;
}

DetectionSample flip(const DetectionSample& sample) {
  DetectionSample out{image::flip(sample.image), sample.objects};
  const double width = static_cast<double>(sample.image.width);
  for (LabelledBox& object : out.objects) {
    const auto [left, top, right, bottom] = object.box;
    object.box = {width - right, top, width - left, bottom};
  }
  return out;
}

DetectionSample resize(const DetectionSample& sample, int64_t height, int64_t width,
                       image::Filter filter) {
  check(height <= kMaxSide && width <= kMaxSide && height * width <= kMaxPixels,
        "augment: a resized picture must have at most {} pixels, got {} x {}", kMaxPixels, height,
        width);
  return {image::resize(sample.image, height, width, filter),
          scaled(sample.objects, {sample.image.height, sample.image.width}, {height, width})};
}

DetectionSample crop(const DetectionSample& sample, int64_t top, int64_t left, int64_t height,
                     int64_t width) {
  DetectionSample out{image::crop(sample.image, top, left, height, width), {}};
  for (LabelledBox object : sample.objects) {
    for (size_t i = 0; i < 4; ++i) {
      const bool across = i % 2 == 0;
      object.box[i] = std::clamp(object.box[i] - static_cast<double>(across ? left : top), 0.0,
                                 static_cast<double>(across ? width : height));
    }
    if (object.area() > 0) out.objects.push_back(object);
  }
  return out;
}

DetectionSample augment(const DetectionSample& sample, const DetectionAugment& options,
                        Random& random) {
  check_augment(options, "augment");
  image::check_image(sample.image, "augment");
  DetectionSample out = random.chance(options.flip) ? flip(sample) : sample;
  if (random.chance(options.crop)) {
    out = resize_to_one_of(out, options.crop_shorter, 0, options.filter, random);
    out = random_crop(out, options.crop_size, random);
  }
  out = resize_to_one_of(out, options.shorter, options.longest, options.filter, random);
  if (options.color_jitter > 0) {
    out.image = color_jitter(std::move(out.image), options.color_jitter, random);
  }
  return out;
}

}  // namespace qna::data
