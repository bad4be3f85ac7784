// The study's rows as text: tables in Markdown, which read well on a terminal too.
#pragma once

#include <string>
#include <vector>

#include "bench/study/row.h"

namespace qna::bench::study {

// Where and what; a table of times and one of memory for every sweep and pass; how the costs grow;
// the claims; what was not measured and why.
std::string report(const Rows& rows);

// The first line is the heading. Columns are as wide as they need to be, the first to the left and
// the others to the right.
std::string markdown_table(const std::vector<std::vector<std::string>>& lines);

}  // namespace qna::bench::study
