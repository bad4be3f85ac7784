// What a run leaves for those who look later: JSON lines and TensorBoard's event files.
#pragma once

#include <memory>
#include <string>

#include "qna/report/event_file.h"
#include "qna/report/json_lines.h"
#include "qna/train/trainer.h"

namespace qna::train {

class RunLog {
 public:
  // resumed_at: how many steps are done; what the log says of later ones is dropped, since they are
  // going to be done again. Below 0: a new run.
  RunLog(const std::string& folder, int64_t resumed_at);

  void step(const StepInfo& info, bool last);
  void epoch(const EpochInfo& info, int64_t step);

  static std::string path(const std::string& folder);  // of the JSON lines

 private:
  std::unique_ptr<report::JsonLines> lines_;
  std::unique_ptr<report::EventFile> events_;
};

}  // namespace qna::train
