#include "bench/study/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/study/claims.h"
#include "bench/study/fit.h"
#include "bench/study/subjects.h"

namespace qna::bench::study {
namespace {

struct SweepText {
  Sweep sweep;
  const char* title;
  const char* column;
};
constexpr SweepText kSweeps[] = {{Sweep::kKernel, "Window", "k = {}"},
                                 {Sweep::kPixels, "Map", "{0}x{0}"},
                                 {Sweep::kDim, "Features", "D = {}"}};

int64_t number_in(Sweep sweep, const Case& shape) {
  return sweep == Sweep::kKernel ? shape.kernel : sweep == Sweep::kDim ? shape.dim : shape.side;
}

// "12.3", three digits where they are of use.
std::string digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string shape_text(const Case& c) {
  return fmt::format("k = {} on {}x{}x{}", c.kernel, c.side, c.side, c.dim);
}

// Subjects of these rows, in the order of the table of subjects.
std::vector<const SubjectKind*> subjects_of(const Rows& rows) {
  std::vector<const SubjectKind*> found;
  for (const SubjectKind& kind : all_subjects()) {
    const bool present = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.subject == kind.name && row.measured();
    });
    if (present) found.push_back(&kind);
  }
  return found;
}

const Row* find_row(const Rows& rows, const std::string& subject, double at, Sweep sweep) {
  for (const Row& row : rows) {
    if (row.subject == subject && value_of(sweep, row.shape) == at) {
      return row.measured() ? &row : nullptr;
    }
  }
  return nullptr;
}

// A cost of every subject along a sweep, with how many times that of QnA it is.
std::string sweep_table(const Rows& rows, const SweepText& text, const Cost& cost) {
  std::map<double, int64_t> columns;
  for (const Row& row : rows) {
    columns[value_of(text.sweep, row.shape)] = number_in(text.sweep, row.shape);
  }
  std::vector<std::vector<std::string>> lines = {{"subject"}};
  for (const auto& [at, number] : columns) {
    lines[0].push_back(fmt::format(fmt::runtime(text.column), number));
  }
  for (const SubjectKind* kind : subjects_of(rows)) {
    std::vector<std::string> line = {kind->title};
    for (const auto& [at, number] : columns) {
      const Row* row = find_row(rows, kind->name, at, text.sweep);
      const Row* own = find_row(rows, "qna", at, text.sweep);
      std::string cell = row == nullptr ? "-" : digits(cost(*row));
      if (row != nullptr && own != nullptr && row != own && cost(*own) > 0) {
        cell += fmt::format(" {}x", digits(cost(*row) / cost(*own)));
      }
      line.push_back(cell);
    }
    lines.push_back(line);
  }
  return markdown_table(lines);
}

double milliseconds(const Row& row) { return row.min_ms; }
double megabytes(const Row& row) { return static_cast<double>(row.extra_bytes) / 1e6; }

std::string sweep_section(const Rows& rows, const SweepText& text) {
  std::string out;
  for (const std::string_view pass : {kForward, kTrain}) {
    const Rows found = sweep_rows(rows, text.sweep, pass);
    if (found.empty()) continue;
    Case base = found.front().shape;
    std::string where =
        text.sweep == Sweep::kKernel
            ? fmt::format("map of {}x{}x{}", base.side, base.side, base.dim)
        : text.sweep == Sweep::kPixels
            ? fmt::format("k = {}, {} features", base.kernel, base.dim)
            : fmt::format("k = {}, map of {}x{}", base.kernel, base.side, base.side);
    const char* what = pass == kForward ? "forward" : "training (forward and backward)";
    out += fmt::format("### {}, {}: milliseconds ({})\n\n{}\n", text.title, what, where,
                       sweep_table(found, text, milliseconds));
    out += fmt::format("### {}, {}: extra memory in MB ({})\n\n{}\n", text.title, what, where,
                       sweep_table(found, text, megabytes));
  }
  return out;
}

std::string growth_section(const Rows& rows) {
  std::string out =
      "### Growth\n\nFitted exponents: e of cost = c n^e, for n the pixels, the side k "
      "of the window, the features D.\n\n";
  for (const std::string_view pass : {kForward, kTrain}) {
    std::vector<std::vector<std::string>> lines = {{fmt::format("subject, {}", pass),
                                                    "time, pixels", "time, k", "time, D",
                                                    "memory, pixels", "memory, k", "memory, D"}};
    for (const SubjectKind* kind : subjects_of(rows)) {
      std::vector<std::string> line = {kind->title};
      bool any = false;
      for (const auto& cost : {milliseconds, megabytes})
        for (const Sweep sweep : {Sweep::kPixels, Sweep::kKernel, Sweep::kDim}) {
          const double e = growth(sweep_rows(rows, sweep, pass), sweep, kind->name, cost);
          line.push_back(std::isnan(e) ? "-" : fmt::format("{:.2f}", e));
          any |= !std::isnan(e);
        }
      if (any) lines.push_back(line);
    }
    if (lines.size() > 1) out += markdown_table(lines) + "\n";
  }
  return out;
}

std::string claims_section(const Rows& rows) {
  std::vector<std::vector<std::string>> lines = {{"claim", "claimed", "measured", "holds"}};
  for (const Claim& claim : claims(rows)) {
    lines.push_back({claim.text, claim.claimed, claim.measured,
                     !claim.holds   ? "not measured"
                     : *claim.holds ? "yes"
                                    : "no"});
  }
  return "### Claims\n\nOf several forms of a subject the best counts, case by case.\n\n" +
         markdown_table(lines) + "\n";
}

std::string missing_section(const Rows& rows) {
  std::map<std::string, std::vector<std::string>> cases;  // by who and why, in their order
  std::vector<std::string> order;
  for (const Row& row : rows) {
    if (row.measured()) continue;
    const std::string who = fmt::format("{}, {}: {}", row.subject, row.pass, row.skipped);
    if (cases[who].empty()) order.push_back(who);
    cases[who].push_back(shape_text(row.shape));
  }
  if (order.empty()) return "";
  std::string out = "### Not measured\n\n";
  for (const std::string& who : order) {
    const std::vector<std::string>& list = cases[who];
    out += fmt::format("- {} ({})\n", who,
                       list.size() > 4 ? fmt::format("{} cases", list.size())
                                       : fmt::format("{}", fmt::join(list, "; ")));
  }
  return out + "\n";
}

std::string heading(const Rows& rows) {
  std::set<std::string> versions, commits;
  for (const Row& row : rows) {
    if (!row.version.empty()) versions.insert(row.version);
    commits.insert(row.commit);
  }
  return fmt::format(
      "{}; {} threads; float32; {} heads, {} queries; {}; commit {}\n\n"
      "Milliseconds are the minimum of interleaved rounds. Extra memory is the peak of what was\n"
      "allocated during one run, without the answer and, in training, the gradients. Behind each\n"
      "number stands how many times that of QnA it is.\n\n",
      rows.front().machine, rows.front().threads, kHeads, kQueries, fmt::join(versions, "; "),
      fmt::join(commits, ", "));
}

}  // namespace

std::string markdown_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 3);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (size_t row = 0; row < lines.size(); ++row) {
    for (size_t i = 0; i < widths.size(); ++i) {
      out += i == 0 ? fmt::format("| {:<{}} |", lines[row][i], widths[i])
                    : fmt::format(" {:>{}} |", lines[row][i], widths[i]);
    }
    out += "\n";
    if (row > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      out += i == 0 ? "|" + std::string(widths[i] + 2, '-') + "|"
                    : std::string(widths[i] + 1, '-') + ":|";
    }
    out += "\n";
  }
  return out;
}

std::string report(const Rows& rows) {
  if (rows.empty()) return "";
  std::string out = heading(rows) + claims_section(rows);
  for (const SweepText& sweep : kSweeps) out += sweep_section(rows, sweep);
  return out + growth_section(rows) + missing_section(rows);
}

}  // namespace qna::bench::study
