#include "qna/report/chart_layout.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/format/text.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

// A phone shows a chart at about three quarters of its size, so the letters are a bit large.
constexpr double kLetter = 7, kLine = 18;
constexpr double kLeft = 4, kRight = 14;

// Letters, not bytes: those that do not continue another.
size_t letters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// At most `most` letters, the last of them an ellipsis where some are missing.
std::string shortened(std::string_view bytes, double width) {
  const std::string text = format::valid_utf8(bytes);
  const auto most = static_cast<size_t>(std::max(2.0, width / kLetter));
  if (letters(text) <= most) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && seen++ == most - 1) break;
  }
  return text.substr(0, end) + "\xe2\x80\xa6";
}

// Rows of a short line and a name each, from `top` on. A single curve needs none if the chart's
// title says what it is. Returns the height.
double place_legend(const Chart& chart, double top, std::vector<LegendEntry>& legend) {
  constexpr double kGap = 14;
  if (chart.curves.size() < 2) return 0;
  double x = kLeft, y = top + kLine / 2;
  for (const Curve& curve : chart.curves) {
    const std::string name = shortened(curve.name, chart.width - kLeft - kRight - kLegendName);
    const double width = kLegendName + kLetter * static_cast<double>(letters(name)) + kGap;
    if (x > kLeft && x + width - kGap > chart.width - kRight) {
      x = kLeft;
      y += kLine;
    }
    legend.push_back({x, y, name});
    x += width;
  }
  return y + kLine / 2 - top + 4;
}

// Adds a point to the column it falls into.
void add_point(std::vector<Column>& run, const Plot& plot, double at, double value) {
  const double x = plot.across(at), y = plot.down(value);
  if (run.empty() || std::floor(run.back().x) != std::floor(x)) {
    run.push_back({x, y, y, y, at, value, value, value});
    return;
  }
  Column& column = run.back();
  const double part = 1.0 / static_cast<double>(++column.points);
  // In this form no sum can overflow.
  column.x = column.x * (1 - part) + x * part;
  column.at = column.at * (1 - part) + at * part;
  column.value = column.value * (1 - part) + value * part;
  column.y = plot.down(column.value);
  column.top = std::min(column.top, y);
  column.bottom = std::max(column.bottom, y);
  column.lowest = std::min(column.lowest, value);
  column.highest = std::max(column.highest, value);
}

Axis axis_of(const Chart& chart, std::vector<double> Curve::*numbers, Scale scale) {
  std::vector<double> all;
  for (const Curve& curve : chart.curves) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      // A point that is not drawn must not stretch the other axis.
      if (can_show(chart.x_scale, curve.x[i]) && can_show(chart.y_scale, curve.y[i])) {
        all.push_back((curve.*numbers)[i]);
      }
    }
  }
  return fit_axis(all, scale);
}

void check_chart(const Chart& chart, std::string_view where) {
  for (const Curve& curve : chart.curves) {
    check(curve.x.size() == curve.y.size(),
          "{}: x and y of curve '{}' must be equally long, got {} and {}", where, curve.name,
          curve.x.size(), curve.y.size());
  }
  check(chart.width >= 200 && chart.width <= 4000 && chart.plot_height >= 100 &&
            chart.plot_height <= 4000,
        "{}: a chart must be from 200 to 4000 wide and its plot from 100 to 4000 high, got {} x {}",
        where, chart.width, chart.plot_height);
}

// Along the lower axis, as many as there is room for.
std::vector<Tick> ticks_across(const Chart& chart, const Plot& plot) {
  if (!chart.x_ticks.empty()) {
    std::vector<Tick> inside;
    for (const Tick& tick : chart.x_ticks) {
      const double place = can_show(plot.x.scale, tick.value) ? plot.x.place(tick.value) : -1;
      if (place >= 0 && place <= 1) inside.push_back(tick);
    }
    return inside;
  }
  std::vector<Tick> across = ticks(plot.x, 7);
  for (int most = 6; most >= 3; --most) {
    size_t length = 0;
    for (const Tick& tick : across) length += tick.label.size() + 2;
    if (kLetter * static_cast<double>(length) <= plot.right - plot.left) break;
    across = ticks(plot.x, most);
  }
  return across;
}

}  // namespace

bool is_dashed(size_t curve) { return curve % (2 * kCurveColors) >= kCurveColors; }

std::vector<std::vector<Column>> runs_of(const Curve& curve, const Plot& plot) {
  std::vector<std::vector<Column>> runs;
  bool gap = true;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    const bool shown = can_show(plot.x.scale, curve.x[i]) && can_show(plot.y.scale, curve.y[i]);
    if (shown && gap) runs.emplace_back();
    if (shown) add_point(runs.back(), plot, curve.x[i], curve.y[i]);
    gap = !shown;
  }
  return runs;
}

ChartLayout lay_out(const Chart& chart, std::string_view where) {
  check_chart(chart, where);
  ChartLayout layout;
  layout.margin = kLeft;
  const double title_height = chart.title.empty() ? 0 : 26;
  const double legend_height = place_legend(chart, title_height, layout.legend);
  Plot& plot = layout.plot;
  plot.top = title_height + legend_height + 10;
  plot.bottom = plot.top + chart.plot_height;
  plot.right = chart.width - kRight;
  plot.x = axis_of(chart, &Curve::x, chart.x_scale);
  plot.y = axis_of(chart, &Curve::y, chart.y_scale);

  layout.up = ticks(plot.y, 6);
  size_t longest = 1;
  for (const Tick& tick : layout.up) longest = std::max(longest, tick.label.size());
  plot.left = 14 + kLetter * static_cast<double>(longest) + (chart.y_label.empty() ? 0 : 16);
  layout.across = ticks_across(chart, plot);

  layout.width = chart.width;
  layout.height = plot.bottom + (chart.x_label.empty() ? 26 : 44);
  // The title has bold and larger letters than those that kLetter is for.
  layout.title = shortened(chart.title, (chart.width - kLeft - kRight) / 1.25);
  layout.x_label = shortened(chart.x_label, plot.right - plot.left);
  layout.y_label = shortened(chart.y_label, plot.bottom - plot.top);
  return layout;
}

std::vector<size_t> drawing_order(const Chart& chart) {
  std::vector<size_t> order;
  for (const bool strong : {false, true}) {
    for (size_t i = 0; i < chart.curves.size(); ++i) {
      if (chart.curves[i].strong == strong) order.push_back(i);
    }
  }
  return order;
}

}  // namespace qna::report
