// --size of the verbs that look into networks: how large a picture goes in.
#pragma once

#include <array>
#include <string>

#include "qna/engine/model.h"
#include "qna/image/image.h"

namespace qna::cli {

// The whole image at its own aspect, or its middle cut to an exact size.
struct InputSize {
  config::Preprocess preprocess;          // without a crop
  std::array<int64_t, 2> exact = {0, 0};  // {0, 0}: by `preprocess`

  // The sides below which an image must not be shrunk before it is fitted.
  int64_t least_side() const;
};

// text: --size; empty: as the model was trained.
InputSize input_size(const std::string& text, const engine::Model& model);

// Sets the shorter side, and with it the limit of the longer one.
void set_shorter_side(config::Preprocess& preprocess, int64_t size);

// Throws qna::Error that begins with `path` where a network's input would be too large.
image::Image fit(const image::Image& image, const InputSize& size, const std::string& path);

// The middle of the image, as much as has the aspect of the size.
image::Image cut_to(const image::Image& image, std::array<int64_t, 2> size, image::Filter filter);

}  // namespace qna::cli
