#include "qna/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace qna::report {
namespace {

constexpr double kSmallest = 1e-300, kLargest = 1e300;

double cut(Scale scale, double value) {
  return std::clamp(value, scale == Scale::kLog ? kSmallest : -kLargest, kLargest);
}

// The smallest of 1, 2, 5, 10, 20 ... (times any power of ten) that is not below `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// 1e+06 is for machines.
std::string plain_exponent(std::string text) {
  const size_t e = text.find('e');
  if (e == std::string::npos) return text;
  const bool negative = text[e + 1] == '-';
  size_t digits = e + 2;
  while (digits + 1 < text.size() && text[digits] == '0') ++digits;
  return text.substr(0, e) + (negative ? "e-" : "e") + text.substr(digits);
}

// With as many digits as tell it from its neighbours, `step` away.
std::string tick_label(double value, double step, double largest) {
  if (value == 0) return "0";
  const int lowest_digit = static_cast<int>(std::floor(std::log10(step) + 1e-9));
  if (largest < 1e5 && lowest_digit >= -4) {
    return fmt::format("{:.{}f}", value, std::max(0, -lowest_digit));
  }
  const int highest_digit = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  return plain_exponent(
      fmt::format("{:.{}e}", value, std::clamp(highest_digit - lowest_digit, 0, 15)));
}

std::vector<Tick> linear_ticks(const Axis& axis, int most) {
  const double step = round_step((axis.high - axis.low) / most);
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  // fit_axis never gives more than about 1e12 steps from zero.
  const auto first = static_cast<int64_t>(std::ceil(axis.low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(axis.high / step + 1e-9));
  std::vector<Tick> result;
  for (int64_t i = first; i <= last && result.size() < static_cast<size_t>(most); ++i) {
    const double value = static_cast<double>(i) * step;
    result.push_back({value, tick_label(value, step, largest)});
  }
  return result;
}

}  // namespace

double Axis::place(double value) const {
  value = cut(scale, value);
  // The quotient of two such numbers could overflow, so each has its own logarithm.
  if (scale == Scale::kLog) {
    return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  }
  return (value - low) / (high - low);
}

bool can_show(Scale scale, double value) {
  return std::isfinite(value) && (scale == Scale::kLinear || value > 0);
}

Axis fit_axis(std::span<const double> values, Scale scale) {
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!can_show(scale, value)) continue;
    low = std::min(low, cut(scale, value));
    high = std::max(high, cut(scale, value));
  }
  if (scale == Scale::kLog) {
    if (low > high) return {scale, 1, 10};
    // In decades; seven beyond 1e300 are still a double.
    const double decades = std::log10(high) - std::log10(low);
    const double wider = decades < 0.02 ? 0.3 : std::clamp(0.03 * decades, 0.02, 7.0);
    return {scale, low * std::pow(10, -wider), high * std::pow(10, wider)};
  }
  if (low > high) return {scale, 0, 1};
  const double magnitude = std::max(std::abs(low), std::abs(high));
  if (magnitude < kSmallest) return {scale, -1, 1};
  if (high - low < 1e-9 * magnitude) return {scale, low - 0.1 * magnitude, high + 0.1 * magnitude};
  const double margin = 0.03 * (high - low);
  if (low >= 0 && low < 0.33 * high) return {scale, 0, high + margin};
  return {scale, low - margin, high + margin};
}

std::vector<Tick> ticks(const Axis& axis, int most) {
  if (axis.scale == Scale::kLinear) return linear_ticks(axis, most);
  const auto first = static_cast<int>(std::ceil(std::log10(axis.low) - 1e-9));
  const auto last = static_cast<int>(std::floor(std::log10(axis.high) + 1e-9));
  const int decades = last - first + 1;
  const auto round_numbers = [&](std::span<const double> factors, int stride) {
    std::vector<Tick> result;
    for (int exponent = first - 1; exponent <= last; exponent += stride) {
      for (const double factor : factors) {
        const double value = factor * std::pow(10.0, exponent);
        const bool inside = value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9);
        if (inside) result.push_back({value, short_number(value)});
      }
    }
    return result;
  };
  constexpr double kFine[] = {1, 2, 5}, kCoarse[] = {1, 3}, kDecades[] = {1};
  for (const std::span<const double> factors :
       {std::span<const double>(kFine), {kCoarse}, {kDecades}}) {
    if (decades > most) break;
    std::vector<Tick> result = round_numbers(factors, 1);
    if (result.size() >= 2 && result.size() <= static_cast<size_t>(most)) return result;
  }
  if (decades > most) return round_numbers(kDecades, (decades + most) / most);
  return linear_ticks(axis, most);
}

std::string short_number(double value) { return plain_exponent(fmt::format("{:.6g}", value)); }

}  // namespace qna::report
