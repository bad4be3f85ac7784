#include "qna/sweep/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "qna/base/file.h"
#include "qna/format/csv.h"
#include "qna/report/metric_text.h"
#include "qna/sweep/cells.h"

namespace qna::sweep {
namespace {

using format::csv_text;

std::string csv_number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

// Letters, not bytes: names may hold signs of several.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

}  // namespace

int64_t Summary::finished() const {
  return std::ranges::count_if(runs, [](const RunResult& run) { return run.finished; });
}

Summary summarize(const Sweep& sweep, std::vector<RowPlan> plans, const std::string& folder) {
  Summary summary{.sweep = &sweep, .plans = std::move(plans), .runs = {}, .rows = {}};
  for (const Run& run : sweep.runs) summary.runs.push_back(read_result(sweep, run, folder));
  summary.rows = row_results(sweep, summary.runs);
  return summary;
}

std::string to_text(const Summary& summary) {
  const Cells cells = cells_of(summary);
  std::vector<size_t> widths(cells.front().size(), 0);
  for (const auto& line : cells) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  }
  std::string out;
  for (const auto& line : cells) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      text += (i == 0 ? "" : "  ") + padded(line[i], widths[i], i == 0);
    }
    while (text.ends_with(' ')) text.pop_back();
    out += text + "\n";
  }
  for (const JudgedClaim& judged : judged_claims(summary)) {
    out += fmt::format("\n{}: {}\n  {} ({})\n", judged.verdict.word, judged.claim->text,
                       judged.rows, judged.verdict.why);
  }
  return out;
}

std::string rows_csv(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  std::string out = "row,runs";
  for (const std::string& name : sweep.numbers()) {
    out += "," + csv_text(name) + "," + csv_text(name + "_deviation");
  }
  out += ",parameters,gflops,paper,difference,images_per_second,minutes,peak_memory_mb\n";
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const RowResult& row = summary.rows[i];
    const Statistics metric = of_number(row, sweep.question.metric);
    out += fmt::format("{},{}", csv_text(sweep.rows[i].name), metric.count);
    for (const std::string& name : sweep.numbers()) {
      const Statistics s = of_number(row, name);
      out += "," + csv_number(s.mean, 4) + "," + csv_number(s.deviation, 4);
    }
    out += fmt::format(",{},{:.4f},{},{},{},{},{}\n", summary.plans[i].parameters,
                       summary.plans[i].gflops, csv_number(sweep.rows[i].paper, 2),
                       csv_text(i == 0 ? ""
                                       : difference_text(metric, of_number(summary.rows[0],
                                                                           sweep.question.metric))),
                       csv_number(row.images_per_second.mean, 1),
                       csv_number(row.seconds.mean / 60, 2), csv_number(row.peak_memory_mb, 0));
  }
  return out;
}

std::string runs_csv(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  std::string out = "row,seed,recipe";
  for (const std::string& name : sweep.numbers()) out += "," + csv_text(name);
  out += ",images_per_second,minutes,peak_memory_mb\n";
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    const RunResult& run = summary.runs[i];
    if (!run.finished) continue;
    out += fmt::format("{},{},{}", csv_text(sweep.rows[sweep.runs[i].row].name), sweep.runs[i].seed,
                       run.recipe);
    for (const std::string& name : sweep.numbers()) {
      out += "," + csv_number(run.numbers.at(name), 6);
    }
    out += fmt::format(",{},{},{}\n", csv_number(run.images_per_second, 1),
                       csv_number(run.seconds / 60, 2), csv_number(run.peak_memory_mb, 0));
  }
  return out;
}

std::string claims_csv(const Summary& summary) {
  std::string out = "claim,rows,verdict,numbers\n";
  for (const JudgedClaim& judged : judged_claims(summary)) {
    out += fmt::format("{},{},{},{}\n", csv_text(judged.claim->text), csv_text(judged.rows),
                       judged.verdict.word, csv_text(judged.verdict.why));
  }
  return out;
}

void write_tables(const Summary& summary, const std::string& folder) {
  const std::filesystem::path place = folder;
  write_file((place / "rows.csv").string(), rows_csv(summary));
  write_file((place / "runs.csv").string(), runs_csv(summary));
  write_file((place / "claims.csv").string(), claims_csv(summary));
  write_file((place / "sweep.html").string(), to_html(summary));
}

}  // namespace qna::sweep
