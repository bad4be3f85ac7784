#include "qna/sweep/cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "qna/report/metric_text.h"

namespace qna::sweep {
namespace {

std::string spread_text(const Statistics& s) {
  if (s.count == 0) return "";
  const std::string mean = report::metric_text(s.mean);
  if (s.count < 2) return mean;
  // As many digits as the mean has.
  return fmt::format("{} \u00b1 {:.{}f}", mean, s.deviation, std::abs(s.mean) < 1 ? 4 : 2);
}

std::string rounded(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

// "; above in 2 of 3 seeds": the same seed gives both rows the same order of images. Nothing where
// runs are missing.
std::string seed_by_seed(const Sweep& sweep, const RowResult& a, const RowResult& b,
                         const std::string& name) {
  const auto of_a = a.values.find(name), of_b = b.values.find(name);
  if (of_a == a.values.end() || of_b == b.values.end()) return "";
  const std::vector<double>&left = of_a->second, &right = of_b->second;
  if (left.size() != sweep.seeds.size() || right.size() != sweep.seeds.size()) return "";
  int above = 0;
  for (size_t i = 0; i < left.size(); ++i) above += left[i] > right[i];
  return fmt::format("; above in {} of {} seeds", above, left.size());
}

size_t place_of(const Sweep& sweep, const std::string& name) {
  const auto found = std::ranges::find(sweep.rows, name, &Row::name);
  return static_cast<size_t>(found - sweep.rows.begin());
}

}  // namespace

Statistics of_number(const RowResult& row, const std::string& name) {
  const auto found = row.numbers.find(name);
  return found == row.numbers.end() ? Statistics{} : found->second;
}

Cells cells_of(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  const bool has_paper =
      std::ranges::any_of(sweep.rows, [](const Row& row) { return std::isfinite(row.paper); });
  std::vector<std::string> header = {"row", "runs"};
  for (const std::string& name : sweep.numbers()) header.push_back(name);
  header.push_back("beside the first");
  if (has_paper) header.insert(header.end(), {"paper", "beside its first"});
  header.insert(header.end(), {"M parameters", "GFLOPs", "images/s", "minutes", "peak MB"});
  Cells cells = {header};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const RowResult& row = summary.rows[i];
    const Statistics metric = of_number(row, sweep.question.metric);
    std::vector<std::string> line = {sweep.rows[i].name, std::to_string(metric.count)};
    for (const std::string& name : sweep.numbers()) {
      line.push_back(spread_text(of_number(row, name)));
    }
    line.push_back(
        i == 0 ? "" : difference_text(metric, of_number(summary.rows[0], sweep.question.metric)));
    if (has_paper) {
      const double beside = sweep.rows[i].paper - sweep.rows[0].paper;
      line.push_back(rounded(sweep.rows[i].paper, 2));
      line.push_back(i > 0 && std::isfinite(beside) ? fmt::format("{:+.2f}", beside) : "");
    }
    line.push_back(rounded(static_cast<double>(summary.plans[i].parameters) / 1e6, 3));
    line.push_back(rounded(summary.plans[i].gflops, 3));
    line.push_back(rounded(row.images_per_second.mean, 0));
    line.push_back(rounded(row.seconds.mean / 60, 1));
    line.push_back(rounded(row.peak_memory_mb, 0));
    cells.push_back(std::move(line));
  }
  return cells;
}

std::vector<JudgedClaim> judged_claims(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  std::vector<JudgedClaim> out;
  for (const Claim& claim : sweep.claims) {
    const RowResult& better = summary.rows[place_of(sweep, claim.better)];
    const RowResult& than = summary.rows[place_of(sweep, claim.than)];
    const bool is_metric = claim.number == sweep.question.metric;
    Verdict verdict = judge(claim, of_number(better, claim.number), of_number(than, claim.number));
    verdict.why += seed_by_seed(sweep, better, than, claim.number);
    out.push_back({.claim = &claim,
                   .rows = fmt::format("{} beside {}{}", claim.better, claim.than,
                                       is_metric ? "" : ", " + claim.number),
                   .verdict = std::move(verdict)});
  }
  return out;
}

}  // namespace qna::sweep
