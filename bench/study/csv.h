// The study's rows as a file.
#pragma once

#include <string>

#include "bench/study/row.h"

namespace qna::bench::study {

std::string to_csv(const Rows& rows);

// The rows of such a text; throws qna::Error that names `origin` and the line if it is none.
Rows from_csv(const std::string& text, const std::string& origin);

}  // namespace qna::bench::study
