// An auto-encoder and one photo.
#pragma once

#include "qna/data/preprocess.h"
#include "qna/image/image.h"
#include "qna/models/auto_encoder.h"

namespace qna::tasks {

// From a network's numbers, [..., C], to 0 .. 1, and from those, [H, W, C], to a picture.
torch::Tensor to_unit(const torch::Tensor& x, const data::Preprocess& preprocess);
image::Image to_picture(const torch::Tensor& unit);

struct Reconstructed {
  image::Image original;  // as the network saw it
  image::Image made;
  double l1 = 0;  // of numbers from 0 to 1
  double psnr = 0;
  double ssim = 0;

  image::Image side_by_side() const;  // of three channels
};

// The model must be in evaluation mode.
Reconstructed reconstruct(models::AutoEncoder& model, const image::Image& photo,
                          const data::Preprocess& preprocess);

}  // namespace qna::tasks
