// How pictures are read, in the section [data] of every recipe.
#pragma once

#include "qna/data/loader.h"
#include "qna/format/fields.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

struct ReadingOptions {
  int64_t workers = 0;      // threads that read; 0: as many as compute
  int64_t cache_mb = 2048;  // of decoded pictures
  bool skip_broken = false;
};

void read_reading(const format::Fields& fields, ReadingOptions& options);

// training: in random order.
data::LoaderOptions loader_options(const ReadingOptions& options, const Run& run, bool training);

}  // namespace qna::tasks
