// Images of different sizes in one batch: each lies at the top left of its map, and a mask [B, H,
// W] is true where it is.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace qna::nn {

// x [B, H, W, C] with zeros where the mask is false, whatever stood there; x itself without a mask.
torch::Tensor zero_masked(const torch::Tensor& x, const torch::Tensor& mask);
// The same with another number.
torch::Tensor fill_masked(const torch::Tensor& x, const torch::Tensor& mask, double value);

// Every n-th row and column of a mask, which may be undefined.
torch::Tensor every_nth(const torch::Tensor& mask, int64_t n);

// run(x, mask) for each image alone, cut out of its map: up to the last row and column that take
// part, at least 1 x 1. All at once, as one result, where every image fills its map.
std::vector<torch::Tensor> on_each_image(
    const torch::Tensor& x, const torch::Tensor& mask,
    const std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>& run);

// Such results [., h, w, C] as one batch again, with zeros around them: [B, height, width, C].
torch::Tensor as_batch(const std::vector<torch::Tensor>& maps, int64_t height, int64_t width);

}  // namespace qna::nn
