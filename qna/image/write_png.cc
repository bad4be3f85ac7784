#include "qna/image/write_png.h"

#include <exception>

#include <png.h>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/image/png_errors.h"

namespace qna::image {
namespace {

void on_write(png_structp png, png_bytep bytes, size_t count) {
  bool full = false;
  try {
    static_cast<std::string*>(png_get_io_ptr(png))
        ->append(reinterpret_cast<const char*>(bytes), count);
  } catch (const std::exception&) {
    full = true;  // png_error jumps, which must not happen inside the handler
  }
  if (full) png_error(png, "no memory for the PNG file");
}

struct PngWriter {
  explicit PngWriter(Guard& guard)
      : png(png_create_write_struct(PNG_LIBPNG_VER_STRING, &guard, &on_png_error, &on_png_warning)),
        info(png == nullptr ? nullptr : png_create_info_struct(png)) {}
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  png_structp png;
  png_infop info;
};

}  // namespace

std::string encode_png(const Image& image, const std::string& name) {
  check_image(image, name);
  std::string bytes;
  Guard guard;
  PngWriter writer(guard);
  check(writer.info != nullptr, "{}: libpng could not be started", name);
  guard.run(name, [&] {
    png_structp png = writer.png;
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_image did that
    png_set_write_fn(png, &bytes, &on_write, nullptr);
    png_set_IHDR(png, writer.info, static_cast<png_uint_32>(image.width),
                 static_cast<png_uint_32>(image.height), 8,
                 image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, writer.info);
    for (int64_t y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
    png_write_end(png, writer.info);
  });
  return bytes;
}

void write_png(const std::string& path, const Image& image) {
  write_file(path, encode_png(image, path));
}

}  // namespace qna::image
