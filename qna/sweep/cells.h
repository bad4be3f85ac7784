// The table of a sweep cell by cell, for those who write it.
#pragma once

#include <string>
#include <vector>

#include "qna/sweep/table.h"

namespace qna::sweep {

// Lines of cells, the header first; the first cell of a line is the name of its row.
using Cells = std::vector<std::vector<std::string>>;
Cells cells_of(const Summary& summary);

// Empty where a row has no such number yet.
Statistics of_number(const RowResult& row, const std::string& name);

struct JudgedClaim {
  const Claim* claim;
  std::string rows;  // "4 queries beside 1 query", with the number where it is not the metric
  Verdict verdict;
};
std::vector<JudgedClaim> judged_claims(const Summary& summary);

}  // namespace qna::sweep
