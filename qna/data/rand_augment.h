// The changes of RandAugment (Cubuk et al. 2019), as in timm's rand-m9-mstd0.5-inc1 with which DeiT
// was trained; docs/augmentation.md has the table.
#pragma once

#include <cstdint>

#include "qna/data/augment.h"
#include "qna/image/affine.h"

namespace qna::data {

enum class Change {
  kAutoContrast,
  kEqualize,
  kInvert,
  kRotate,
  kPosterize,
  kSolarize,
  kSolarizeAdd,
  kColor,
  kContrast,
  kBrightness,
  kSharpness,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
};
inline constexpr int64_t kChanges = 15;

const char* change_name(Change change);

// What `change` is done with at a magnitude from 0 to 10, which makes it stronger as it grows:
// degrees, bits, a threshold, an amount, a factor or a share. Some have two directions.
double change_parameter(Change change, double magnitude, bool negative);

// `fill` is the colour of places outside.
image::Image apply_change(image::Image image, Change change, double parameter, image::Filter filter,
                          const image::Color& fill);

// All of `options`: each change is drawn from the list, with replacement.
image::Image rand_augment(image::Image image, const RandAugment& options, image::Filter filter,
                          const image::Color& fill, Random& random);

}  // namespace qna::data
