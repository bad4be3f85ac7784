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
Decoded decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                    const ReadOptions& options);

// {height, width} as it lies in the file, and how it is turned.
struct Header {
  int64_t height = 0;
  int64_t width = 0;
  int orientation = 1;
};
Header jpeg_header(std::span<const uint8_t> bytes, const std::string& name);
Header png_header(std::span<const uint8_t> bytes, const std::string& name);
Header webp_header(std::span<const uint8_t> bytes, const std::string& name);

// Checks the size that a file claims, before memory is taken for it.
void check_size(int64_t height, int64_t width, const std::string& name, const ReadOptions& options);

}  // namespace qna::image
