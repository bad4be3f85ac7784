// The page of a sweep: question, table, verdicts, charts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "qna/report/html.h"
#include "qna/report/machine.h"
#include "qna/sweep/cells.h"

namespace qna::sweep {
namespace {

using report::Chart;
using report::Curve;

// Rows stand one beside the other under their numbers; the table has the names.
std::vector<report::Tick> row_ticks(const Sweep& sweep) {
  std::vector<report::Tick> ticks;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    ticks.push_back({static_cast<double>(i + 1), std::to_string(i + 1)});
  }
  return ticks;
}

// Rows have no order: every point is a dot of its own, and no line goes from one to the next.
void add_dot(Curve& curve, double x, double y) {
  curve.x.insert(curve.x.end(), {x, x});
  curve.y.insert(curve.y.end(), {y, std::numeric_limits<double>::quiet_NaN()});
}

Chart by_row(const Summary& summary, const std::string& number) {
  constexpr double kBetweenSeeds = 0.12;
  Chart chart{.title = number + " of each row, a dot for each seed",
              .x_label = "row of the table",
              .y_label = number,
              .x_ticks = row_ticks(*summary.sweep),
              .dots = true};
  Curve curve{.name = "this sweep"};
  for (size_t i = 0; i < summary.rows.size(); ++i) {
    const auto found = summary.rows[i].values.find(number);
    if (found == summary.rows[i].values.end()) continue;
    const std::vector<double>& values = found->second;
    const double left = static_cast<double>(i + 1) - kBetweenSeeds * (values.size() - 1) / 2;
    for (size_t k = 0; k < values.size(); ++k) add_dot(curve, left + kBetweenSeeds * k, values[k]);
  }
  chart.curves.push_back(std::move(curve));
  return chart;
}

// Ours and the paper's are of different data; what can be compared is what a change does.
Chart beside_the_paper(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  const std::string& metric = sweep.question.metric;
  Chart chart{.title = "Beside the first row, here and in the paper",
              .x_label = "row of the table",
              .y_label = metric,
              .x_ticks = row_ticks(sweep),
              .dots = true};
  Curve ours{.name = "this sweep"}, theirs{.name = "paper"};
  const double first = of_number(summary.rows[0], metric).mean;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const auto at = static_cast<double>(i + 1);
    add_dot(ours, at, of_number(summary.rows[i], metric).mean - first);
    add_dot(theirs, at, sweep.rows[i].paper - sweep.rows[0].paper);
  }
  chart.curves = {ours, theirs};
  return chart;
}

double cost_of(const Summary& summary, size_t row, const std::string& what) {
  if (what == "parameters") return static_cast<double>(summary.plans[row].parameters) / 1e6;
  if (what == "gflops") return summary.plans[row].gflops;
  if (what == "images_per_second") return summary.rows[row].images_per_second.mean;
  return summary.rows[row].peak_memory_mb;
}

const char* title_of(const std::string& what) {
  if (what == "parameters") return "parameters, millions";
  if (what == "gflops") return "GFLOPs of a picture";
  if (what == "images_per_second") return "images per second in training";
  return "peak memory in training, MB";
}

// A dot per row, with its name in the legend.
Chart against(const Summary& summary, const std::string& what) {
  const Sweep& sweep = *summary.sweep;
  Chart chart{.title = fmt::format("{} against {}", sweep.question.metric, title_of(what)),
              .x_label = title_of(what),
              .y_label = sweep.question.metric,
              .dots = true};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    chart.curves.push_back({.name = sweep.rows[i].name,
                            .x = {cost_of(summary, i, what)},
                            .y = {of_number(summary.rows[i], sweep.question.metric).mean}});
  }
  return chart;
}

std::string table_html(const Summary& summary) {
  std::string html = "<div class=\"scroll\"><table class=\"pairs\">\n";
  const Cells cells = cells_of(summary);
  for (size_t i = 0; i < cells.size(); ++i) {
    const char* tag = i == 0 ? "th" : "td";
    const std::string number = i == 0 ? "" : std::to_string(i);
    html += fmt::format("<tr><{0}>{1}</{0}>", tag, number);
    for (size_t k = 0; k < cells[i].size(); ++k) {
      html += fmt::format("<{0}{1}>{2}</{0}>", tag, k == 0 ? " class=\"name\"" : "",
                          report::escape(cells[i][k]));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string verdicts_html(const Summary& summary) {
  std::string html;
  for (const JudgedClaim& judged : judged_claims(summary)) {
    const std::string& word = judged.verdict.word;
    const char* style = word == "confirmed" ? "right" : word == "refuted" ? "wrong" : "soft";
    html += fmt::format(
        "<p><span class=\"{}\">{}</span>: {}<br/><span class=\"soft\">{} ({})</span></p>\n", style,
        report::escape(word), report::escape(judged.claim->text), report::escape(judged.rows),
        report::escape(judged.verdict.why));
  }
  return html;
}

std::string question_html(const Question& question) {
  std::string html;
  if (!question.text.empty()) html += fmt::format("<p>{}</p>\n", report::escape(question.text));
  if (!question.paper.empty()) {
    html += fmt::format("<p class=\"soft\">In the paper: {}</p>\n", report::escape(question.paper));
  }
  return html;
}

constexpr const char* kHowToRead =
    "<p class=\"soft\">Mean \u00b1 standard deviation over the seeds. Rows differ where the "
    "difference of their "
    "means is larger than both deviations and than chance makes it in 95 of 100 cases (Welch's t); "
    "otherwise it says \u201cno difference\u201d. No verdict without 3 seeds. Speed, minutes and "
    "memory are of this "
    "machine and vary from time to time.</p>\n";

}  // namespace

std::vector<Chart> charts(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  std::vector<Chart> out;
  for (const std::string& number : sweep.numbers()) out.push_back(by_row(summary, number));
  const auto papers =
      std::ranges::count_if(sweep.rows, [](const Row& row) { return std::isfinite(row.paper); });
  if (papers > 1 && std::isfinite(sweep.rows[0].paper)) {
    out.insert(out.begin() + 1, beside_the_paper(summary));
  }
  for (const std::string& what : sweep.question.against) out.push_back(against(summary, what));
  return out;
}

std::string to_html(const Summary& summary) {
  const Sweep& sweep = *summary.sweep;
  std::string body;
  const std::string question = question_html(sweep.question);
  if (!question.empty()) body += report::card("Question", question);
  const std::string progress =
      fmt::format("{} of {} runs", summary.finished(), summary.runs.size());
  body += report::card("Answers, " + progress, kHowToRead + table_html(summary));
  if (!sweep.claims.empty()) body += report::card("Verdicts", verdicts_html(summary));
  body += report::chart_grid(charts(summary));
  body +=
      report::card("Machine", report::description_list("facts", describe(report::this_machine())));
  return report::page(sweep.question.title, body);
}

}  // namespace qna::sweep
