#include "qna/tasks/depth.h"

#include <cstdio>

namespace qna::tasks {

int64_t depth_in_body(const std::string& parameter, int64_t stages) {
  int stage = 0;
  if (std::sscanf(parameter.c_str(), "stages.%d.", &stage) == 1) return stages - stage;
  if (std::sscanf(parameter.c_str(), "layer%d.", &stage) == 1) return stages + 1 - stage;
  return stages + 1;
}

}  // namespace qna::tasks
