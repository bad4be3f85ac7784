// Event files, which TensorBoard shows while they grow. event_record.h has the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "qna/image/image.h"
#include "qna/report/append_file.h"

namespace qna::report {

// One file, events.out.tfevents.<seconds>.<host>.<process>.qna, for one thread at a time.
class EventFile {
 public:
  // Makes the folder if it is missing, and always a new file: a resumed run adds one, and
  // TensorBoard shows all files of a folder as one run. resumed_at: the first step that will be
  // written again; what older files say of it and of later steps is hidden.
  explicit EventFile(const std::string& folder, std::optional<int64_t> resumed_at = std::nullopt);

  // A tag such as "train/loss" is the name of a chart; it must not be empty. Values are kept as
  // float32, the format's own type; NaN and infinity are allowed.
  void scalar(const std::string& tag, int64_t step, double value);
  void text(const std::string& tag, int64_t step, const std::string& markdown);
  void image(const std::string& tag, int64_t step, const image::Image& pixels);

  // Every event is with the operating system at once; this waits until it is on the disk.
  void flush();

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace qna::report
