// An auto-encoder and one image.
#pragma once

#include <span>

#include "qna/data/preprocess.h"
#include "qna/engine/model.h"
#include "qna/image/image.h"

namespace qna::predict {

// From a network's numbers, [..., channels], to 0 .. 1, in place.
void to_unit(std::span<float> numbers, const config::Preprocess& preprocess);

// From numbers of 0 .. 1, [height, width, channels], to an image; those beyond are cut.
image::Image to_image(std::span<const float> unit, int64_t height, int64_t width, int64_t channels);

struct Reconstructed {
  image::Image original;  // as the network saw it
  image::Image made;
  double l1 = 0;  // of numbers from 0 to 1
  double psnr = 0;
  double ssim = 0;

  image::Image side_by_side() const;  // of three channels
};

// The image has as many channels as the model. preprocess: that of the model's file, or another.
Reconstructed reconstruct(const engine::Model& model, const image::Image& image,
                          const config::Preprocess& preprocess, engine::Context& context);

}  // namespace qna::predict
