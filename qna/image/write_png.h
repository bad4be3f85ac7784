// Images to PNG files.
#pragma once

#include <string>

#include "qna/image/image.h"

namespace qna::image {

// The file is whole or absent, see write_file in qna/base/file.h.
void write_png(const std::string& path, const Image& image);

// The bytes of such a file; `name` is for messages.
std::string encode_png(const Image& image, const std::string& name);

}  // namespace qna::image
