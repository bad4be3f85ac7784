// How images are read, in the section [data] of every recipe.
#pragma once

#include <cstdint>

#include "qna/format/fields.h"

namespace qna::tasks {

struct ReadingOptions {
  int64_t workers = 0;      // threads that read; 0: as many as compute
  int64_t cache_mb = 2048;  // of decoded images
  bool skip_broken = false;
};

void read_reading(const format::Fields& fields, ReadingOptions& options);

}  // namespace qna::tasks
