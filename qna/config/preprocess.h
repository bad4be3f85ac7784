// How an image becomes a network's input: a part of what a weights file says. data/preprocess.h
// does it.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "qna/image/resize.h"

namespace qna::config {

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

// {"resize": 256, "crop": [224, 224], "filter": "bicubic", "mean": [...], "std": [...]},
// and "longest" where there is such a limit.
nlohmann::json to_json(const Preprocess& preprocess);

// What is left out keeps its default. An unknown key, a wrong type or a wrong value is a qna::Error
// that begins with `where`, such as the name of the file, and names the key.
Preprocess preprocess_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace qna::config
