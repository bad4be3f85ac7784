// What read.cc asks of the file formats.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qna/image/image.h"
#include "qna/image/read.h"

namespace qna::image {

// An image as it lies in its file: grey or colour, not yet turned upright.
struct Decoded {
  Image image;
  int orientation = 1;  // see orientation.h
};

Decoded decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                    const ReadOptions& options);
Decoded decode_png(std::span<const uint8_t> bytes, const std::string& name,
                   const ReadOptions& options);

// Checks the size that a file claims, before memory is taken for it.
void check_size(int64_t height, int64_t width, const std::string& name, const ReadOptions& options);

}  // namespace qna::image
