#include "qna/data/rand_augment.h"

#include <algorithm>
#include <array>
#include <utility>

#include "qna/base/error.h"
#include "qna/image/enhance.h"
#include "qna/image/tone.h"

namespace qna::data {
namespace {

using image::Image;

constexpr double kMaxMagnitude = 10;

constexpr std::array<const char*, kChanges> kNames = {
    "AutoContrast", "Equalize",    "Invert", "Rotate",     "Posterize",
    "Solarize",     "SolarizeAdd", "Color",  "Contrast",   "Brightness",
    "Sharpness",    "ShearX",      "ShearY", "TranslateX", "TranslateY"};

}  // namespace

const char* change_name(Change change) { return kNames.at(static_cast<size_t>(change)); }

double change_parameter(Change change, double magnitude, bool negative) {
  check(magnitude >= 0 && magnitude <= kMaxMagnitude,
        "change_parameter: magnitude must be in [0, 10], got {}", magnitude);
  const double level = magnitude / kMaxMagnitude;
  const double sign = negative ? -1 : 1;
  switch (change) {
    case Change::kAutoContrast:
    case Change::kEqualize:
    case Change::kInvert:
      return 0;
    case Change::kRotate:
      return sign * level * 30;
    case Change::kPosterize:
      return 4 - static_cast<int>(level * 4);
    case Change::kSolarize:
      return 256 - std::min(256, static_cast<int>(level * 256));
    case Change::kSolarizeAdd:
      return std::min(128, static_cast<int>(level * 110));
    case Change::kColor:
    case Change::kContrast:
    case Change::kBrightness:
    case Change::kSharpness:
      return std::max(0.1, 1 + sign * (level * 0.9));
    case Change::kShearX:
    case Change::kShearY:
      return sign * level * 0.3;
    case Change::kTranslateX:
    case Change::kTranslateY:
      return sign * level * 0.45;
  }
  fail("change_parameter: change must be one of Change, got {}", static_cast<int>(change));
}

Image apply_change(Image image, Change change, double parameter, image::Filter filter,
                   const image::Color& fill) {
  const int whole = static_cast<int>(parameter);
  switch (change) {
    case Change::kAutoContrast:
      return image::autocontrast(std::move(image));
    case Change::kEqualize:
      return image::equalize(std::move(image));
    case Change::kInvert:
      return image::invert(std::move(image));
    case Change::kRotate:
      return image::rotate(image, parameter, filter, fill);
    case Change::kPosterize:
      return image::posterize(std::move(image), whole);
    case Change::kSolarize:
      return image::solarize(std::move(image), whole);
    case Change::kSolarizeAdd:
      return image::solarize_add(std::move(image), whole);
    case Change::kColor:
      return image::saturation(std::move(image), parameter);
    case Change::kContrast:
      return image::contrast(std::move(image), parameter);
    case Change::kBrightness:
      return image::brightness(std::move(image), parameter);
    case Change::kSharpness:
      return image::sharpness(image, parameter);
    case Change::kShearX:
      return image::shear_x(image, parameter, filter, fill);
    case Change::kShearY:
      return image::shear_y(image, parameter, filter, fill);
    case Change::kTranslateX:
      return image::translate_x(image, parameter, filter, fill);
    case Change::kTranslateY:
      return image::translate_y(image, parameter, filter, fill);
  }
  fail("apply_change: change must be one of Change, got {}", static_cast<int>(change));
}

Image rand_augment(Image image, const RandAugment& options, image::Filter filter,
                   const image::Color& fill, Random& random) {
  for (int64_t i = 0; i < options.ops; ++i) {
    // Four numbers whatever comes of them, so that one change does not shift those of the next.
    const Change change = static_cast<Change>(random.below(kChanges));
    const bool wanted = random.chance(options.probability);
    const double magnitude =
        std::clamp(options.magnitude + options.std * random.normal(), 0.0, kMaxMagnitude);
    const bool negative = random.chance(0.5);
    if (!wanted) continue;
    image = apply_change(std::move(image), change, change_parameter(change, magnitude, negative),
                         filter, fill);
  }
  return image;
}

}  // namespace qna::data
