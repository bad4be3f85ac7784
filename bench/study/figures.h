// The study's charts.
#pragma once

#include <string>
#include <vector>

#include "bench/study/row.h"
#include "qna/report/chart.h"

namespace qna::bench::study {

struct Figure {
  std::string name;  // of its files
  report::Chart chart;
};

// Time and memory against the window, time against the pixels; of those passes that were measured.
std::vector<Figure> figures(const Rows& rows);

// Each as <name>.svg. Returns the paths.
std::vector<std::string> write_figures(const Rows& rows, const std::string& folder);

}  // namespace qna::bench::study
