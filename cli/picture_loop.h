// Verbs that do the same with many pictures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/progress.h"

namespace qna::cli {

// Calls work(i, progress) for each picture, with a bar; wipe it before printing. A picture whose
// work throws qna::Error is reported and does not stop the rest. Returns how many did.
int64_t for_each_picture(const std::vector<std::string>& paths,
                         const std::function<void(size_t i, Progress& progress)>& work);

// To be called at the end: throws qna::Error if pictures failed.
void check_all_used(int64_t failed, const std::vector<std::string>& paths);

}  // namespace qna::cli
