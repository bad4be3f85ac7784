// A survey in words.
#pragma once

#include <string>
#include <vector>

#include "qna/finetune/survey.h"

namespace qna::finetune {

// What was found: kind, counts, sizes, and a row for each class; only some rows where there are
// many.
std::vector<std::string> describe(const Survey& survey);

// What people should know before they believe in the result, each with its remedy.
std::vector<std::string> warnings(const Survey& survey);

}  // namespace qna::finetune
