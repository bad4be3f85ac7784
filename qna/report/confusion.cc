#include "qna/report/confusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "qna/base/error.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

void check_confusion(const Confusion& confusion) {
  const size_t classes = confusion.classes.size();
  check(classes >= 1, "Confusion: classes must not be empty, got 0");
  check(confusion.counts.size() == classes * classes,
        "Confusion: counts must be {} x {} numbers, got {}", classes, classes,
        confusion.counts.size());
  for (const int64_t count : confusion.counts) {
    check(count >= 0, "Confusion: counts must not be negative, got {}", count);
  }
}

// A double, because hostile counts could overflow.
double row_sum(const Confusion& confusion, size_t truth) {
  double sum = 0;
  for (size_t k = 0; k < confusion.classes.size(); ++k) {
    sum += static_cast<double>(confusion.at(truth, k));
  }
  return sum;
}

double share_of(int64_t count, double sum) {
  return sum > 0 ? static_cast<double>(count) / sum : 0;
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::string cell(const Confusion& confusion, size_t truth, size_t predicted, double sum) {
  const int64_t count = confusion.at(truth, predicted);
  const double share = share_of(count, sum);
  const std::string title =
      escape(fmt::format("{} taken for {}: {} ({})", confusion.classes[truth],
                         confusion.classes[predicted], count, percent(share)));
  if (count == 0) return fmt::format("<td class=\"none\" title=\"{}\">0</td>", title);
  // Confusions are few in a good model, so the root lets them be seen; on the shade of a strong
  // cell dark letters cannot be read.
  const bool right = truth == predicted;
  const double shade = right ? 0.9 * share : 0.9 * std::min(1.0, std::sqrt(share));
  return fmt::format("<td{} style=\"background: rgba(var(--{}), {:.3f})\" title=\"{}\">{}</td>",
                     shade > 0.6 ? " class=\"strong\"" : "", right ? "shade" : "miss", shade, title,
                     count);
}

std::string matrix(const Confusion& confusion) {
  const size_t classes = confusion.classes.size();
  std::string html = fmt::format(
      "<p class=\"soft\">Rows: true class. Columns: predicted class.</p>\n<div class=\"scroll\">\n"
      "<table class=\"confusion{}\">\n<thead><tr><th></th>",
      classes > 14 ? " many" : "");
  for (const std::string& name : confusion.classes) {
    html += fmt::format("<th scope=\"col\" title=\"{0}\"><span>{0}</span></th>", escape(name));
  }
  html += "<th scope=\"col\"><span>right</span></th></tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < classes; ++i) {
    const double sum = row_sum(confusion, i);
    html +=
        fmt::format("<tr><th scope=\"row\" title=\"{0}\">{0}</th>", escape(confusion.classes[i]));
    for (size_t k = 0; k < classes; ++k) html += cell(confusion, i, k, sum);
    html += fmt::format("<td class=\"share\">{}</td></tr>\n",
                        sum > 0 ? percent(share_of(confusion.at(i, i), sum)) : "\xe2\x80\x93");
  }
  return html + "</tbody>\n</table>\n</div>\n";
}

std::string pair_list(const Confusion& confusion) {
  const std::vector<ConfusedPair> pairs = most_confused(confusion);
  if (pairs.empty()) return "<p>No two classes were confused.</p>\n";
  std::string html = fmt::format(
      "<p class=\"soft\">The most confused of {} classes.</p>\n<div class=\"scroll\">\n"
      "<table class=\"pairs\">\n<thead><tr><th class=\"name\" scope=\"col\">true</th>"
      "<th class=\"name\" scope=\"col\">predicted</th><th scope=\"col\">times</th>"
      "<th scope=\"col\">of the class</th></tr></thead>\n<tbody>\n",
      confusion.classes.size());
  for (const ConfusedPair& pair : pairs) {
    fmt::format_to(std::back_inserter(html),
                   "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td>"
                   "</tr>\n",
                   escape(confusion.classes[pair.truth]), escape(confusion.classes[pair.predicted]),
                   pair.count, percent(pair.share));
  }
  return html + "</tbody>\n</table>\n</div>\n";
}

}  // namespace

std::vector<ConfusedPair> most_confused(const Confusion& confusion, size_t most) {
  check_confusion(confusion);
  std::vector<ConfusedPair> pairs;
  for (size_t i = 0; i < confusion.classes.size(); ++i) {
    const double sum = row_sum(confusion, i);
    for (size_t k = 0; k < confusion.classes.size(); ++k) {
      const int64_t count = confusion.at(i, k);
      if (i != k && count > 0) pairs.push_back({i, k, count, share_of(count, sum)});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const ConfusedPair& a, const ConfusedPair& b) {
    return std::tie(b.count, a.truth, a.predicted) < std::tie(a.count, b.truth, b.predicted);
  });
  if (pairs.size() > most) pairs.resize(most);
  return pairs;
}

std::string to_html(const Confusion& confusion) {
  check_confusion(confusion);
  return confusion.classes.size() <= kMostMatrixClasses ? matrix(confusion) : pair_list(confusion);
}

}  // namespace qna::report
