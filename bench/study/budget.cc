#include "bench/study/budget.h"

#include <fmt/format.h>

#include <algorithm>

namespace qna::bench::study {
namespace {

constexpr int64_t Case::*kSides[] = {&Case::kernel, &Case::side, &Case::dim};

// The subject's rows that are smaller than `shape` in this respect and equal in all others, the
// largest last.
std::vector<const Row*> smaller(const Rows& rows, const std::string& subject, std::string_view pass,
                                const Case& shape, int64_t Case::*what) {
  std::vector<const Row*> found;
  for (const Row& row : rows) {
    if (row.subject != subject || row.pass != pass || row.shape.*what >= shape.*what) continue;
    Case same = row.shape;
    same.*what = shape.*what;
    if (same == shape) found.push_back(&row);
  }
  std::sort(found.begin(), found.end(),
            [&](const Row* a, const Row* b) { return a->shape.*what < b->shape.*what; });
  return found;
}

// The power by which a cost grew from one row to the next; between 0 and 4.
double power(double from, double to, double cost_from, double cost_to) {
  if (!(cost_from > 0) || !(cost_to > 0)) return 2;
  return std::clamp(std::log(cost_to / cost_from) / std::log(to / from), 0.0, 4.0);
}

}  // namespace

std::string over_budget(const Rows& rows, const std::string& subject, std::string_view pass,
                        const Case& shape, const Budget& budget) {
  for (int64_t Case::*const what : kSides) {
    const std::vector<const Row*> found = smaller(rows, subject, pass, shape, what);
    if (found.empty()) continue;
    const Row& last = *found.back();
    if (!last.measured()) return last.skipped;
    double time_power = 2, memory_power = 2;
    const auto at = static_cast<double>(last.shape.*what);
    if (found.size() >= 2) {
      const Row& before = *found[found.size() - 2];
      const auto from = static_cast<double>(before.shape.*what);
      time_power = power(from, at, before.min_ms, last.min_ms);
      memory_power = power(from, at, static_cast<double>(before.peak_bytes),
                           static_cast<double>(last.peak_bytes));
    }
    const double ratio = static_cast<double>(shape.*what) / at;
    const double seconds = last.min_ms / 1e3 * std::pow(ratio, time_power);
    const double bytes = static_cast<double>(last.peak_bytes) * std::pow(ratio, memory_power);
    if (bytes > static_cast<double>(budget.bytes)) {
      return fmt::format("would need more than {:.0f} GB", static_cast<double>(budget.bytes) / 1e9);
    }
    if (seconds > budget.seconds) {
      return fmt::format("a run would take more than {:.0f} s", budget.seconds);
    }
  }
  return "";
}

}  // namespace qna::bench::study
