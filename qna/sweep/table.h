// The table of a sweep, as text, as CSV and as a page.
#pragma once

#include <string>
#include <vector>

#include "qna/report/chart.h"
#include "qna/sweep/cost.h"
#include "qna/sweep/result.h"
#include "qna/sweep/sweep.h"

namespace qna::sweep {

// A sweep and all that is known of it.
struct Summary {
  const Sweep* sweep;
  std::vector<RowPlan> plans;
  std::vector<RunResult> runs;
  std::vector<RowResult> rows;

  int64_t finished() const;  // runs
};

// Reads the folder of the sweep.
Summary summarize(const Sweep& sweep, std::vector<RowPlan> plans, const std::string& folder);

// For people: rows, mean and standard deviation, the difference to the first row, cost, and the
// verdicts on the claims below.
std::string to_text(const Summary& summary);

// One line per row. The columns up to `difference` are the same whenever and wherever a sweep is
// run with the same number of threads; images_per_second, minutes and peak_memory_mb are not.
std::string rows_csv(const Summary& summary);
// One line per finished run.
std::string runs_csv(const Summary& summary);
// One line per claim, with the verdict on it.
std::string claims_csv(const Summary& summary);

// Each number row by row with a band from the worst to the best seed, the difference to the first
// row beside the paper's, and the charts that the question asks for.
std::vector<report::Chart> charts(const Summary& summary);

// A page with the question, the table, the verdicts and the charts; needs nothing else.
std::string to_html(const Summary& summary);

// rows.csv, runs.csv, claims.csv and sweep.html in the folder of the sweep, each whole or absent.
void write_tables(const Summary& summary, const std::string& folder);

}  // namespace qna::sweep
