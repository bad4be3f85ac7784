// The bytes of TensorBoard's event files, by hand: they need a few small messages of a protocol
// that has many, and so no protobuf library.
//
// A file is a row of records (TFRecord), integers in little endian:
//
//   uint64 length | uint32 masked CRC of the length | data | uint32 masked CRC of the data
//   masked CRC = rotate_right(crc32c, 15) + 0xa282ead8
//
// The data of a record is an Event. Of its messages these fields are used, numbered as in the
// files event.proto, summary.proto and tensor.proto of TensorBoard:
//
//   Event            1 wall_time (double), 2 step (int64), 3 file_version (string),
//                    5 summary (Summary), 7 session_log (SessionLog)
//   SessionLog       1 status (enum, 1 is START)
//   Summary          1 value (Value)
//   Value            1 tag (string), 2 simple_value (float), 4 image (Image),
//                    8 tensor (TensorProto), 9 metadata (SummaryMetadata)
//   Image            1 height, 2 width, 3 colorspace (1 grey, 3 RGB), 4 encoded_image_string
//   TensorProto      1 dtype (enum, 7 is string), 2 tensor_shape (empty: a scalar), 8 string_val
//   SummaryMetadata  1 plugin_data (1 plugin_name), 4 data_class (enum, 2 is tensor)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qna::report {

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t crc32c(std::string_view bytes);

// One record with `data` in it.
std::string event_record(std::string_view data);

struct Moment {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
};

// The data of records. Tags and texts must be UTF-8, see format::valid_utf8().
std::string version_event(double wall_time);  // the first of every file
std::string start_event(const Moment& at);    // what was seen at this step and later is void
std::string scalar_event(const Moment& at, std::string_view tag, float value);
std::string text_event(const Moment& at, std::string_view tag, std::string_view markdown);

struct EncodedImage {
  int64_t height;
  int64_t width;
  int64_t channels;
  std::string_view png;
};
std::string image_event(const Moment& at, std::string_view tag, const EncodedImage& encoded);

}  // namespace qna::report
