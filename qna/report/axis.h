// An axis of a chart: from numbers to places, and the round numbers written along it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace qna::report {

enum class Scale { kLinear, kLog };

struct Axis {
  Scale scale = Scale::kLinear;
  double low = 0;
  double high = 1;  // above low

  // 0 at low, 1 at high; for a number that can_show() allows.
  double place(double value) const;
};

// Finite, and above zero where the scale is logarithmic.
bool can_show(Scale scale, double value);

// The axis for these numbers, a little wider than they are. Those that cannot be shown do not
// count; without any others the axis goes from 0 to 1, or from 1 to 10. A linear axis of numbers
// that are not negative begins at 0 if that costs less than a third of it. Magnitudes are cut to
// 1e-300 .. 1e300, so that no difference overflows.
Axis fit_axis(std::span<const double> values, Scale scale);

struct Tick {
  double value;
  std::string label;
};

// At most `most` (at least 3) round numbers on the axis: 1, 2 or 5 times a power of ten apart, or
// on a logarithmic axis powers of ten, if there are enough of them.
std::vector<Tick> ticks(const Axis& axis, int most);

// For people: up to six digits.
std::string short_number(double value);

}  // namespace qna::report
