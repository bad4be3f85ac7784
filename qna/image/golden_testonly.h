// Shared by the tests: the images in tests/images and the hashes of what Pillow makes of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/image/image.h"
#include "tests/support/complaint.h"

namespace qna::image::testing {

inline std::string image_path(const std::string& name) {
  return std::string(QNA_TEST_IMAGES) + "/" + name;
}

inline std::vector<uint8_t> image_bytes(const std::string& name) {
  std::ifstream file(image_path(name), std::ios::binary);
  EXPECT_TRUE(file) << image_path(name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// FNV-1a, as tests/images/make.py writes it.
inline std::string hash(std::span<const uint8_t> bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3u;
  return fmt::format("{:016x}", value);
}

// The same bytes as noise() of tests/images/make.py.
inline Image noise(int64_t height, int64_t width, int64_t channels) {
  Image image = make_image(height, width, channels);
  uint32_t state = 1;
  for (uint8_t& pixel : image.pixels) {
    state = state * 1664525u + 1013904223u;
    pixel = static_cast<uint8_t>(state >> 24);
  }
  return image;
}

using qna::testing::complaint;
using qna::testing::contains;

}  // namespace qna::image::testing
