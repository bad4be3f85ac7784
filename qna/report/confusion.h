// Which classes a model takes for which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qna::report {

struct Confusion {
  std::vector<std::string> classes;
  // How often class `truth` was taken for class `predicted`: counts[truth * classes + predicted].
  std::vector<int64_t> counts;

  int64_t at(size_t truth, size_t predicted) const {
    return counts[truth * classes.size() + predicted];
  }
};

// Above this many classes a matrix is too large to be read.
inline constexpr size_t kMostMatrixClasses = 30;
inline constexpr size_t kMostConfusedPairs = 30;

struct ConfusedPair {
  size_t truth;
  size_t predicted;
  int64_t count;
  double share;  // of all of class `truth`, 0 to 1
};

// Pairs of two different classes that were confused at least once, the most frequent first; equally
// frequent ones in the order of their classes.
std::vector<ConfusedPair> most_confused(const Confusion& confusion,
                                        size_t most = kMostConfusedPairs);

// An HTML table: a row for each true class, a column for each predicted one, cells with counts and
// shaded by their share of the row, and how many of the row are right. Above kMostMatrixClasses it
// is the list of the most confused pairs instead.
std::string to_html(const Confusion& confusion);

}  // namespace qna::report
