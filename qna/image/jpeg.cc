#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jerror.h>
#include <jpeglib.h>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/image/decode.h"
#include "qna/image/guard.h"
#include "qna/image/orientation.h"

namespace qna::image {
namespace {

// Each scan of a progressive file costs a pass over the whole image and may take few bytes.
// Encoders write about ten.
constexpr int kMaxScans = 200;

// What is wrong with the file, but not with its pixels.
constexpr int kHarmlessWarnings[] = {JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_NOT_SEQUENTIAL};

Guard& guard_of(j_common_ptr info) { return *static_cast<Guard*>(info->client_data); }

[[noreturn]] void on_error(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  guard_of(info).stop(message);
}

// Where libjpeg would warn and fill the rest with grey, the image is not whole.
void on_message(j_common_ptr info, int level) {
  const bool is_warning = level < 0;
  const auto end = std::end(kHarmlessWarnings);
  const bool is_harmless =
      std::find(std::begin(kHarmlessWarnings), end, info->err->msg_code) != end;
  if (is_warning && !is_harmless) on_error(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    char message[80];
    std::snprintf(message, sizeof(message), "a JPEG file must have at most %d scans", kMaxScans);
    guard_of(info).stop(message);
  }
}

// How much larger than `min_side` the shorter side must still be after scaled decoding.
//
// libjpeg scales by leaving out the high frequencies of each 8 x 8 block, which is not the low-pass
// of a resize; the more the resize still has to shrink, the less of that remains. Measured on
// photographs with sides of 200 to 800 pixels, 167, 127 and 106 of them for 1/2, 1/4 and 1/8, with
// both filters, as the difference from full decoding after the resize, in units of 1/255:
//
//   factor   mean at most   99.9 % within   largest
//     1          2.9             34           101
//     2          1.2              9            25
//     3          0.5              4            17
//     4          0.4              3            11
constexpr int64_t kSpareFactor = 3;

// The size to decode at, in eighths, when the shorter side will be shrunk to `min_side`. The other
// eighths would do too, but libjpeg-turbo has no SIMD for them: they are no faster than full size.
//
// Only sizes that divide both sides evenly: else the last pixel would stand for a part of a pixel,
// and the image would be stretched and might come out of the resize one pixel longer.
unsigned scaled_decoding(int64_t height, int64_t width, int64_t min_side) {
  if (min_side == 0) return 8;
  for (const unsigned divisor : {8, 4, 2}) {
    const bool even = height % divisor == 0 && width % divisor == 0;
    if (even && std::min(height, width) / divisor / kSpareFactor >= min_side) return 8 / divisor;
  }
  return 8;
}

int orientation_of(const jpeg_decompress_struct& info) {
  constexpr uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};
  for (const jpeg_marker_struct* marker = info.marker_list; marker; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    if (data.size() >= sizeof(kExif) && std::memcmp(data.data(), kExif, sizeof(kExif)) == 0) {
      return exif_orientation(data.subspan(sizeof(kExif)));
    }
  }
  return 1;
}

class JpegDecoder {
 public:
  explicit JpegDecoder(const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = &on_error;
    errors_.emit_message = &on_message;
    info_.client_data = &guard_;
    guard_.run(name_, [&] { jpeg_create_decompress(&info_); });
    info_.progress = &progress_;
    progress_.progress_monitor = &on_progress;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Header header(std::span<const uint8_t> bytes) {
    guard_.run(name_, [&] {
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);  // EXIF
      jpeg_mem_src(&info_, bytes.data(), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    return {info_.image_height, info_.image_width, orientation_of(info_)};
  }

  Decoded decode(std::span<const uint8_t> bytes, const ReadOptions& options) {
    header(bytes);
    check_size(info_.image_height, info_.image_width, name_, options);
    choose_output(options);
    guard_.run(name_, [&] { jpeg_start_decompress(&info_); });
    Decoded decoded;
    decoded.orientation = orientation_of(info_);
    decoded.image = make_image(info_.output_height, info_.output_width,
                               info_.out_color_space == JCS_GRAYSCALE ? 1 : 3);
    read_rows(decoded.image);
    return decoded;
  }

 private:
  void choose_output(const ReadOptions& options) {
    switch (info_.num_components) {
      case 1:
        info_.out_color_space = JCS_GRAYSCALE;
        break;
      case 3:
        info_.out_color_space = JCS_RGB;
        break;
      case 4:
        info_.out_color_space = JCS_CMYK;
        break;
      default:
        fail("{}: a JPEG picture must have 1, 3 or 4 components, got {}", name_,
             info_.num_components);
    }
    info_.scale_num = scaled_decoding(info_.image_height, info_.image_width, options.min_side);
    info_.scale_denom = 8;
    info_.dct_method = JDCT_ISLOW;  // the accurate one, as Pillow's
    info_.do_fancy_upsampling = TRUE;
  }

  void read_rows(Image& image) {
    const bool is_cmyk = info_.out_color_space == JCS_CMYK;
    std::vector<uint8_t> inks(is_cmyk ? static_cast<size_t>(4 * image.width) : 0);
    guard_.run(name_, [&] {
      while (info_.output_scanline < info_.output_height) {
        uint8_t* row = image.row(info_.output_scanline);
        uint8_t* target = is_cmyk ? inks.data() : row;
        jpeg_read_scanlines(&info_, &target, 1);
        if (is_cmyk) inverted_cmyk_to_rgb(row, inks.data(), image.width);
      }
      jpeg_finish_decompress(&info_);  // reads on to the end marker: the file must be whole
    });
  }

  const std::string& name_;
  Guard guard_;
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
};

}  // namespace

Decoded decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                    const ReadOptions& options) {
  return JpegDecoder(name).decode(bytes, options);
}

Header jpeg_header(std::span<const uint8_t> bytes, const std::string& name) {
  return JpegDecoder(name).header(bytes);
}

}  // namespace qna::image
