#include <cstring>

#include <png.h>

#include "qna/base/error.h"
#include "qna/image/decode.h"
#include "qna/image/orientation.h"
#include "qna/image/png_errors.h"

namespace qna::image {
namespace {

void on_read(png_structp png, png_bytep to, size_t count) {
  auto& left = *static_cast<std::span<const uint8_t>*>(png_get_io_ptr(png));
  if (count > left.size()) png_error(png, "the PNG file is cut off");
  std::memcpy(to, left.data(), count);
  left = left.subspan(count);
}

class PngDecoder {
 public:
  PngDecoder(std::span<const uint8_t> bytes, const std::string& name) : name_(name), left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &guard_, &on_png_error, &on_png_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      destroy();
      fail("{}: libpng could not be started", name_);
    }
    png_set_read_fn(png_, &left_, &on_read);
  }
  ~PngDecoder() { destroy(); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // The orientation only where it stands before the pixels.
  Header header() {
    guard_.run(name_, [&] {
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size says it better
      ignore_chunks();
      png_read_info(png_, info_);
    });
    return {png_get_image_height(png_, info_), png_get_image_width(png_, info_), orientation()};
  }

  Decoded decode(const ReadOptions& options) {
    const auto [height, width, ignored] = header();
    check_size(height, width, name_, options);
    int passes = 0;
    guard_.run(name_, [&] { passes = choose_output(); });
    Decoded decoded;
    decoded.image = make_image(height, width, png_get_channels(png_, info_));
    Image& image = decoded.image;
    check(static_cast<int64_t>(png_get_rowbytes(png_, info_)) == image.row_bytes(),
          "{}: a row must have {} bytes, libpng makes {}", name_, image.row_bytes(),
          png_get_rowbytes(png_, info_));
    guard_.run(name_, [&] {
      for (int pass = 0; pass < passes; ++pass)
        for (int64_t y = 0; y < image.height; ++y) png_read_row(png_, image.row(y), nullptr);
      png_read_end(png_, info_);  // the file must be whole
    });
    decoded.orientation = orientation();
    return decoded;
  }

 private:
  void destroy() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // All that is not pixels or EXIF: compressed texts and profiles could only do harm.
  void ignore_chunks() {
    constexpr uint8_t kExif[] = {'e', 'X', 'I', 'f', 0};
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT, kExif, 1);
  }

  // 8 bits a channel, grey or red, green, blue. Returns the number of passes over the rows.
  int choose_output() {
    if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_16(png_);  // the high byte
    png_set_strip_alpha(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return passes;
  }

  int orientation() {
    png_bytep data = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &data) == 0) return 1;
    return exif_orientation({data, size});
  }

  const std::string& name_;
  std::span<const uint8_t> left_;
  Guard guard_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Decoded decode_png(std::span<const uint8_t> bytes, const std::string& name,
                   const ReadOptions& options) {
  return PngDecoder(bytes, name).decode(options);
}

Header png_header(std::span<const uint8_t> bytes, const std::string& name) {
  return PngDecoder(bytes, name).header();
}

}  // namespace qna::image
