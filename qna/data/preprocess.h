// From a picture to the numbers that a model takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "qna/image/image.h"
#include "qna/image/resize.h"

namespace qna::data {

// The steps in their order. The defaults are those of most ImageNet models.
struct Preprocess {
  int64_t resize = 256;                      // of the shorter side; 0: the size stays
  int64_t longest = 0;                       // of the longer side after resizing, at most; 0: any
  std::array<int64_t, 2> crop = {224, 224};  // height and width of the middle; 0, 0: all of it
  image::Filter filter = image::Filter::kBicubic;
  // One number per channel, so their count, 1 or 3, is the model's number of channels.
  std::vector<float> mean = {0.485f, 0.456f, 0.406f};
  std::vector<float> std = {0.229f, 0.224f, 0.225f};

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  bool operator==(const Preprocess&) const = default;
};

// Throws qna::Error that begins with `where` and names the field.
void check_preprocess(const Preprocess& preprocess, const std::string& where);

// {height, width} whose shorter side is `shorter` unless the longer would exceed `longest` (0: no
// limit), with DETR's roundings: a shorter side that must give way is rounded to the nearest pixel,
// halves to even, and the longer one follows from it, rounded down. So the longer side may exceed
// `longest` by up to half the ratio of the sides.
std::array<int64_t, 2> resized_size(std::array<int64_t, 2> size, int64_t shorter, int64_t longest);

// {height, width} of fit(), for a picture of the given {height, width}.
std::array<int64_t, 2> output_size(std::array<int64_t, 2> size, const Preprocess& preprocess);

// Resized and cropped, with the sizes and roundings of torchvision's Resize and CenterCrop, and of
// resized_size().
image::Image fit(const image::Image& image, const Preprocess& preprocess);

// out[H, W, C] = (pixel / 255 - mean) / std, in float32 in this order. Rows begin `row_floats`
// apart; 0: without gaps.
void to_floats(const image::Image& image, const Preprocess& preprocess, float* out,
               int64_t row_floats = 0);

// {"resize": 256, "crop": [224, 224], "filter": "bicubic", "mean": [...], "std": [...]},
// and "longest" where there is such a limit.
nlohmann::json to_json(const Preprocess& preprocess);

// What is left out keeps its default. An unknown key, a wrong type or a wrong value is a qna::Error
// that begins with `where`, such as the name of the file, and names the key.
Preprocess preprocess_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace qna::data
