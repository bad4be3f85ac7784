// A training image, changed at random. Definitions are timm's and DeiT's; docs/augmentation.md
// states each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "qna/base/random.h"
#include "qna/image/image.h"
#include "qna/image/resize.h"

namespace qna::data {

// `ops` changes, each done with `probability`, of strength magnitude +- std, out of 10.
struct RandAugment {
  int64_t ops = 2;
  double magnitude = 9;
  double std = 0.5;
  double probability = 0.5;
  bool operator==(const RandAugment&) const = default;
};

// The steps in their order.
struct Augment {
  std::array<int64_t, 2> size = {224, 224};  // height and width of the result
  // A part of the image, of this share of its area and this ratio of width to height, resized.
  // Shares of 1, 1 and pad > 0: the whole image resized, `pad` pixels put around it (reflected)
  // and a random part of it taken, as is usual for CIFAR.
  std::array<double, 2> crop_scale = {0.08, 1};
  std::array<double, 2> crop_ratio = {3. / 4, 4. / 3};
  int64_t pad = 0;
  image::Filter filter = image::Filter::kBicubic;
  double flip = 0.5;  // probability of a mirror image
  std::optional<RandAugment> rand_augment = std::nullopt;
  double color_jitter = 0;  // brightness, contrast and saturation by up to this share
  // Probability that a rectangle is replaced by noise of normal distribution, after normalisation.
  double erase = 0;
  std::array<float, 3> fill = {0.485f, 0.456f, 0.406f};  // of places outside, 0..1 per channel

  bool operator==(const Augment&) const = default;
};

// Throws qna::Error that begins with `where` and names the field, the rule and the value.
void check_augment(const Augment& augment, const char* where);

// A part of an image, mirrored or not.
struct View {
  int64_t top;
  int64_t left;
  int64_t height;
  int64_t width;
  bool mirrored;
  bool operator==(const View&) const = default;
};

// All steps on pixels: everything but erasing. Grey images stay grey. view: what is seen of the
// image, in the place of a random part and mirroring; null: those.
image::Image augment(const image::Image& image, const Augment& options, Random& random,
                     const View* view = nullptr);

// Brightness, contrast and saturation, in random order, each by a factor in [1 - amount, 1 +
// amount].
image::Image color_jitter(image::Image image, double amount, Random& random);

// pixels[height, width, channels], normalised.
void erase(float* pixels, int64_t height, int64_t width, int64_t channels, double probability,
           Random& random);

}  // namespace qna::data
