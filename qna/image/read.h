// Images from JPEG, PNG and WebP files.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "qna/image/image.h"

namespace qna::image {

struct ReadOptions {
  // 3: red, green, blue. 1: grey. Other files are converted as Pillow's convert("RGB") and
  // convert("L") do: alpha is dropped, luma is that of ITU-R 601.
  int64_t channels = 3;

  // 0: every pixel of the file. Otherwise the caller is going to shrink the shorter side to
  // `min_side`, and a JPEG image may be decoded at 1/2, 1/4 or 1/8 of its size, which is faster,
  // so long as that is exact enough; see scaled_decoding in jpeg.cc.
  int64_t min_side = 0;

  // A file of a few kilobytes can claim any size. More pixels than these are an error, before
  // memory is taken for them.
  int64_t max_pixels = int64_t{1} << 28;
};

// The kind of file is told by its first bytes, never by its name. The orientation in its EXIF data
// is applied. Throws qna::Error that names the file for everything that is not a whole image.
Image read_image(const std::string& path, const ReadOptions& options = {});

// The same for a file in memory; `name` is for messages.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name,
                   const ReadOptions& options = {});

// {height, width} of the image that read_image() would give, by the file's headers: of its pixels
// nothing is known. Throws likewise.
std::array<int64_t, 2> read_image_size(const std::string& path);
std::array<int64_t, 2> decode_image_size(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace qna::image
