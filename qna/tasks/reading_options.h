// How a task reads its pictures, as the section [data] of a recipe wants it.
#pragma once

#include "qna/data/loader.h"
#include "qna/recipe/reading_options.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

// training: in random order.
data::LoaderOptions loader_options(const ReadingOptions& options, const Run& run, bool training);

}  // namespace qna::tasks
