#include "qna/report/event_file.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "qna/base/error.h"
#include "qna/format/text.h"
#include "qna/image/write_png.h"
#include "qna/report/event_record.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  std::string host = name[0] == 0 ? "localhost" : name;
  for (char& c : host) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain && c != '-' && c != '.') c = '_';
  }
  return host;
}

// TensorBoard reads the files of a folder in the order of their names, so a second file of one
// second takes the next.
std::string new_path(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "EventFile: cannot make folder {}: {}", folder, error.message());
  for (auto seconds = static_cast<int64_t>(now());; ++seconds) {
    const fs::path path = fs::path(folder) / fmt::format("events.out.tfevents.{:010}.{}.{}.qna",
                                                         seconds, host_name(), ::getpid());
    if (!fs::exists(path)) return path.string();
  }
}

std::string checked(const std::string& tag) {
  check(!tag.empty(), "EventFile: tag must not be empty, got ''");
  return format::valid_utf8(tag);
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::optional<int64_t> resumed_at)
    : file_(new_path(folder), AppendFile::Open::kNew) {
  file_.append(event_record(version_event(now())));
  if (resumed_at) file_.append(event_record(start_event({now(), *resumed_at})));
}

void EventFile::scalar(const std::string& tag, int64_t step, double value) {
  file_.append(event_record(scalar_event({now(), step}, checked(tag), static_cast<float>(value))));
}

void EventFile::text(const std::string& tag, int64_t step, const std::string& markdown) {
  file_.append(event_record(text_event({now(), step}, checked(tag), format::valid_utf8(markdown))));
}

void EventFile::image(const std::string& tag, int64_t step, const image::Image& pixels) {
  const std::string name = checked(tag);
  const std::string png = image::encode_png(pixels, "EventFile: image " + tag);
  file_.append(event_record(
      image_event({now(), step}, name, {pixels.height, pixels.width, pixels.channels, png})));
}

void EventFile::flush() { file_.sync(); }

}  // namespace qna::report
