#include "qna/viz/heat_map.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/image/image.h"

namespace qna::viz {
namespace {

// Keys' cubic with a = -0.5 (IEEE Trans. ASSP 29, 1981).
double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

// The numbers of a row of `in` that make number `i` of a row of `out`, with weights of sum 1.
struct Source {
  int64_t first;
  std::vector<double> weights;
};

Source source_of(int64_t i, int64_t in, double shown, int64_t out, Scaling scaling) {
  const double step = shown / out;
  const double center = (i + 0.5) * step;  // 0.5 is the middle of the first number
  if (scaling == Scaling::kNearest) {
    return {std::clamp(static_cast<int64_t>(center), int64_t{0}, in - 1), {1.0}};
  }
  const double widening = std::max(step, 1.0);
  const int64_t begin = std::max<int64_t>(0, std::llround(center - 2 * widening));
  const int64_t end = std::min<int64_t>(in, std::llround(center + 2 * widening));
  Source source{begin, {}};
  double sum = 0;
  for (int64_t n = begin; n < end; ++n) {
    source.weights.push_back(cubic((n + 0.5 - center) / widening));
    sum += source.weights.back();
  }
  for (double& weight : source.weights) weight /= sum;
  return source;
}

std::vector<Source> sources(int64_t in, double shown, int64_t out, Scaling scaling) {
  std::vector<Source> list;
  for (int64_t i = 0; i < out; ++i) list.push_back(source_of(i, in, shown, out, scaling));
  return list;
}

}  // namespace

HeatMap make_heat_map(int64_t height, int64_t width) {
  return {height, width, std::vector<float>(static_cast<size_t>(height * width))};
}

void check_heat_map(const HeatMap& map, std::string_view where) {
  const auto sane = [](int64_t side) { return side >= 1 && side <= image::kMaxSide; };
  check(sane(map.height) && sane(map.width),
        "{}: the sides of a heat map must be in [1, {}], got height {} and width {}", where,
        image::kMaxSide, map.height, map.width);
  check(static_cast<int64_t>(map.values.size()) == map.height * map.width,
        "{}: a heat map of {} x {} must have {} values, got {}", where, map.height, map.width,
        map.height * map.width, map.values.size());
}

HeatMap resize(const HeatMap& map, int64_t height, int64_t width, Scaling scaling,
               const std::optional<Extent>& shown) {
  check_heat_map(map, "resize");
  const auto sane = [](int64_t side) { return side >= 1 && side <= image::kMaxSide; };
  check(sane(height) && sane(width), "resize: height and width must be in [1, {}], got {} and {}",
        image::kMaxSide, height, width);
  const Extent extent =
      shown.value_or(Extent{static_cast<double>(map.height), static_cast<double>(map.width)});
  check(extent.rows > 0 && extent.rows <= map.height && extent.columns > 0 &&
            extent.columns <= map.width,
        "resize: what is shown must be a part of the {} x {} map, got {} x {}", map.height,
        map.width, extent.rows, extent.columns);

  const std::vector<Source> columns = sources(map.width, extent.columns, width, scaling);
  HeatMap wide = make_heat_map(map.height, width);
  for (int64_t y = 0; y < map.height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      double sum = 0;
      int64_t n = columns[x].first;
      for (const double weight : columns[x].weights) sum += weight * map.at(y, n++);
      wide.at(y, x) = static_cast<float>(sum);
    }

  const std::vector<Source> rows = sources(map.height, extent.rows, height, scaling);
  HeatMap out = make_heat_map(height, width);
  std::vector<double> sum(width);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0);
    int64_t n = rows[y].first;
    for (const double weight : rows[y].weights) {
      for (int64_t x = 0; x < width; ++x) sum[x] += weight * wide.at(n, x);
      ++n;
    }
    for (int64_t x = 0; x < width; ++x) out.at(y, x) = static_cast<float>(sum[x]);
  }
  return out;
}

HeatMap mean(std::span<const HeatMap> maps) {
  check(!maps.empty(), "mean: there must be at least one heat map, got none");
  HeatMap out = make_heat_map(maps[0].height, maps[0].width);
  const float share = 1.0f / static_cast<float>(maps.size());
  for (const HeatMap& map : maps) {
    check_heat_map(map, "mean");
    check(map.height == out.height && map.width == out.width,
          "mean: the heat maps must be of one size, got {} x {} and {} x {}", out.height, out.width,
          map.height, map.width);
    for (size_t i = 0; i < out.values.size(); ++i) out.values[i] += share * map.values[i];
  }
  return out;
}

Range range_of(std::span<const HeatMap> maps, double cut) {
  check(cut >= 0 && cut < 0.5, "range_of: cut must be at least 0 and below 0.5, got {}", cut);
  std::vector<float> values;
  for (const HeatMap& map : maps)
    for (const float value : map.values)
      if (std::isfinite(value)) values.push_back(value);
  if (values.empty()) return {};
  const auto skipped = static_cast<std::ptrdiff_t>(cut * static_cast<double>(values.size()));
  const auto nth = [&](std::ptrdiff_t n) {
    std::nth_element(values.begin(), values.begin() + n, values.end());
    return values[n];
  };
  const auto last = static_cast<std::ptrdiff_t>(values.size()) - 1;
  return {nth(skipped), nth(last - skipped)};
}

}  // namespace qna::viz
