#include "bench/study/fit.h"

#include <algorithm>
#include <map>
#include <set>

namespace qna::bench::study {
namespace {

// The case with what is varied taken out.
Case rest_of(Sweep sweep, Case shape) {
  (sweep == Sweep::kKernel ? shape.kernel : sweep == Sweep::kDim ? shape.dim : shape.side) = 0;
  return shape;
}

}  // namespace

double exponent(std::span<const double> x, std::span<const double> y) {
  double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(x[i] > 0) || !(y[i] > 0)) continue;
    const double a = std::log(x[i]), b = std::log(y[i]);
    n += 1, sum_x += a, sum_y += b, sum_xx += a * a, sum_xy += a * b;
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  return spread > 1e-9 ? (n * sum_xy - sum_x * sum_y) / spread : NAN;
}

double value_of(Sweep sweep, const Case& shape) {
  switch (sweep) {
    case Sweep::kKernel:
      return static_cast<double>(shape.kernel);
    case Sweep::kPixels:
      return static_cast<double>(shape.pixels());
    case Sweep::kDim:
      return static_cast<double>(shape.dim);
  }
  return NAN;
}

Rows sweep_rows(const Rows& rows, Sweep sweep, std::string_view pass) {
  std::map<Case, std::set<double>> groups;
  for (const Row& row : rows) {
    if (row.pass == pass) groups[rest_of(sweep, row.shape)].insert(value_of(sweep, row.shape));
  }
  const auto largest = std::max_element(groups.begin(), groups.end(), [](auto& a, auto& b) {
    return a.second.size() < b.second.size();
  });
  Rows found;
  if (largest == groups.end() || largest->second.size() < 2) return found;
  for (const Row& row : rows) {
    if (row.pass == pass && rest_of(sweep, row.shape) == largest->first) found.push_back(row);
  }
  std::stable_sort(found.begin(), found.end(), [&](const Row& a, const Row& b) {
    return value_of(sweep, a.shape) < value_of(sweep, b.shape);
  });
  return found;
}

double growth(const Rows& sweep_rows, Sweep sweep, const std::string& subject, const Cost& cost) {
  std::vector<double> x, y;
  for (const Row& row : sweep_rows) {
    if (row.subject != subject || !row.measured()) continue;
    x.push_back(value_of(sweep, row.shape));
    y.push_back(cost(row));
  }
  return exponent(x, y);
}

}  // namespace qna::bench::study
