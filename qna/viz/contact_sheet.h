// Many images on one, with captions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qna/image/image.h"

namespace qna::viz {

struct Captioned {
  image::Image image;
  std::string caption;  // one line above it, shortened to its width
};

struct SheetOptions {
  int64_t columns = 0;                  // 0: as many as make a sheet about half wider than high
  std::vector<std::string> title = {};  // lines above all, shortened to the sheet's width
};

// Row by row; all places are as large as the largest image.
image::Image contact_sheet(std::span<const Captioned> images, const SheetOptions& options = {});

}  // namespace qna::viz
