// How near an image is to another one. Sums are in float64 and in a fixed order.
#pragma once

#include <cstdint>

namespace qna::predict {

// One image of numbers from 0 to 1.
struct ImageView {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  const float* numbers = nullptr;  // [height, width, channels]

  int64_t count() const { return height * width * channels; }
};

double mean_absolute_error(const ImageView& a, const ImageView& b);
double mean_squared_error(const ImageView& a, const ImageView& b);

// Peak signal to noise ratio in dB; infinite where the images are equal.
double psnr(const ImageView& a, const ImageView& b);

// "Image Quality Assessment: From Error Visibility to Structural Similarity" (2004), as
// scikit-image's structural_similarity with its defaults: means over 7 x 7 pixels, sample
// covariance, the mean over channels and over all windows inside the image, which must have at
// least 7 x 7 pixels.
struct Ssim {
  double all = 0;
  // Its three factors, each the mean over windows by itself: of means, of deviations, and the
  // correlation. In one window their product is `all`.
  double light = 0, contrast = 0, structure = 0;
};
Ssim ssim(const ImageView& a, const ImageView& b);

}  // namespace qna::predict
