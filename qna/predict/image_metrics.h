// How near a picture is to another one. Sums are in float64 and in a fixed order.
#pragma once

#include <cstdint>

namespace qna::predict {

// One picture of numbers from 0 to 1.
struct PictureView {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  const float* numbers = nullptr;  // [height, width, channels]

  int64_t count() const { return height * width * channels; }
};

double mean_absolute_error(const PictureView& a, const PictureView& b);
double mean_squared_error(const PictureView& a, const PictureView& b);

// Peak signal to noise ratio in dB; infinite where the pictures are equal.
double psnr(const PictureView& a, const PictureView& b);

// "Image Quality Assessment: From Error Visibility to Structural Similarity" (2004), as
// scikit-image's structural_similarity with its defaults: means over 7 x 7 pixels, sample
// covariance, the mean over channels and over all windows inside the picture, which must have at
// least 7 x 7 pixels.
double ssim(const PictureView& a, const PictureView& b);

}  // namespace qna::predict
