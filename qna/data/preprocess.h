// From an image to the numbers that a model takes.
#pragma once

#include <array>
#include <cstdint>

#include "qna/config/preprocess.h"
#include "qna/image/image.h"

namespace qna::data {

using config::Preprocess;

// {height, width} whose shorter side is `shorter` unless the longer would exceed `longest` (0: no
// limit), with DETR's roundings: a shorter side that must give way is rounded to the nearest pixel,
// halves to even, and the longer one follows from it, rounded down. So the longer side may exceed
// `longest` by up to half the ratio of the sides.
std::array<int64_t, 2> resized_size(std::array<int64_t, 2> size, int64_t shorter, int64_t longest);

// {height, width} of fit(), for an image of the given {height, width}.
std::array<int64_t, 2> output_size(std::array<int64_t, 2> size, const Preprocess& preprocess);

// Resized and cropped, with the sizes and roundings of torchvision's Resize and CenterCrop, and of
// resized_size().
image::Image fit(const image::Image& image, const Preprocess& preprocess);

// out[H, W, C] = (pixel / 255 - mean) / std, in float32 in this order. Rows begin `row_floats`
// apart; 0: without gaps.
void to_floats(const image::Image& image, const Preprocess& preprocess, float* out,
               int64_t row_floats = 0);

}  // namespace qna::data
