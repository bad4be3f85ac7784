// The cheapest way to pair the rows of a matrix with its columns, each at most once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qna::tasks {

// cost [rows, columns], row by row. Pairs as many as the shorter side has, such that the sum of
// their costs is the least there is: the Hungarian method by shortest augmenting paths, which takes
// O(short^2 long) steps. Returns each row's column, -1 for rows that got none. Of several equally
// cheap ways it is always the same one. Costs may be negative; throws qna::Error unless all are
// finite.
std::vector<int64_t> assign(std::span<const double> cost, int64_t rows, int64_t columns);

}  // namespace qna::tasks
