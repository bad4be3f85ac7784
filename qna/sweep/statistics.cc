#include "qna/sweep/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qna::sweep {
namespace {

double square(double value) { return value * value; }

// Of Student's t with so many degrees of freedom 95 % lie between - and + this.
double t_limit(double freedom) {
  constexpr double kLimits[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  // Down to a whole number, which asks for a little more.
  const auto row = static_cast<size_t>(std::clamp(freedom, 1.0, double(std::size(kLimits))));
  return kLimits[row - 1];
}

}  // namespace

Statistics statistics(std::span<const double> values) {
  Statistics s{.count = static_cast<int64_t>(values.size())};
  if (values.empty()) return s;
  const auto n = static_cast<double>(values.size());
  s.mean = 0;
  for (const double value : values) s.mean += value / n;
  if (values.size() < 2) return s;
  double sum = 0;
  for (const double value : values) sum += square(value - s.mean);
  s.deviation = std::sqrt(sum / (n - 1));
  return s;
}

Comparison compare(const Statistics& a, const Statistics& b) {
  if (std::min(a.count, b.count) < kLeastSeeds) return Comparison::kTooFew;
  const double difference = a.mean - b.mean;
  const double of_a = square(a.deviation) / static_cast<double>(a.count);
  const double of_b = square(b.deviation) / static_cast<double>(b.count);
  double chance = 0;
  if (of_a + of_b > 0) {
    const double freedom = square(of_a + of_b) / (square(of_a) / static_cast<double>(a.count - 1) +
                                                  square(of_b) / static_cast<double>(b.count - 1));
    chance = t_limit(freedom) * std::sqrt(of_a + of_b);
  }
  if (!(std::abs(difference) > std::max({chance, a.deviation, b.deviation}))) {
    return Comparison::kSame;
  }
  return difference > 0 ? Comparison::kHigher : Comparison::kLower;
}

std::string difference_text(const Statistics& a, const Statistics& b) {
  if (a.count == 0 || b.count == 0) return "";
  const std::string number = fmt::format("{:+.2f}", a.mean - b.mean);
  switch (compare(a, b)) {
    case Comparison::kTooFew:
      return number + ", too few seeds";
    case Comparison::kSame:
      return number + ", no difference";
    default:
      return number;
  }
}

Verdict judge(const Claim& claim, const Statistics& better, const Statistics& than) {
  const Comparison found = compare(better, than);
  if (found == Comparison::kTooFew) {
    return {"open", fmt::format("{} and {} runs; a verdict needs {} of each", better.count,
                                than.count, kLeastSeeds)};
  }
  const int digits = std::max(std::abs(better.mean), std::abs(than.mean)) < 2 ? 4 : 2;
  const std::string why =
      fmt::format("{0:.{4}f} \u00b1 {1:.{4}f} beside {2:.{4}f} \u00b1 {3:.{4}f}", better.mean,
                  better.deviation, than.mean, than.deviation, digits);
  const bool same = found == Comparison::kSame;
  if (claim.same) return {same ? "confirmed" : "refuted", why};
  const bool as_said = (found == Comparison::kHigher) != claim.lower_is_better;
  if (claim.no_worse) return {same || as_said ? "confirmed" : "refuted", why};
  if (same) return {"no difference", why + ", which is within the spread"};
  return {as_said ? "confirmed" : "refuted", why};
}

}  // namespace qna::sweep
