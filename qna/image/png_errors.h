// libpng's errors, for reading and writing alike.
#pragma once

#include <png.h>

#include "qna/image/guard.h"

namespace qna::image {

// The error pointer of `png` is a Guard.
[[noreturn]] inline void on_png_error(png_structp png, png_const_charp message) {
  static_cast<Guard*>(png_get_error_ptr(png))->stop(message);
}

// Warnings are about what does not touch the pixels, colour profiles above all.
inline void on_png_warning(png_structp, png_const_charp) {}

}  // namespace qna::image
