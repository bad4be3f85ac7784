// How near a picture is to another one. Pictures are [B, H, W, C] of numbers from 0 to 1; results
// are one number per picture, [B] in float64.
#pragma once

#include <torch/types.h>

namespace qna::tasks {

torch::Tensor mean_absolute_error(const torch::Tensor& a, const torch::Tensor& b);
torch::Tensor mean_squared_error(const torch::Tensor& a, const torch::Tensor& b);

// Peak signal to noise ratio in dB; infinite where the pictures are equal.
torch::Tensor psnr(const torch::Tensor& a, const torch::Tensor& b);

// "Image Quality Assessment: From Error Visibility to Structural Similarity" (2004), as
// scikit-image's structural_similarity with its defaults: means over 7 x 7 pixels, sample
// covariance, the mean over channels and over all windows inside the picture, which must have at
// least 7 x 7 pixels.
torch::Tensor ssim(const torch::Tensor& a, const torch::Tensor& b);

// The power of an error's spectrum, summed over pictures and channels: [B, H, W, C] -> [H, W].
torch::Tensor error_power(const torch::Tensor& error);

// How much an error repeats itself every `period` pixels, as grids and checkerboards of up-sampling
// do: its power at that period, across, down and along both diagonals, over that of the frequencies
// up to two steps away. 1: not more than around it. The sides of `power` must be multiples of the
// period, and at least 8 times as large.
double grid_energy(const torch::Tensor& power, int64_t period);

}  // namespace qna::tasks
