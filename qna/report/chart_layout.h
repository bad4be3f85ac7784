// Where everything of a chart stands, for those who draw it. y grows downwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qna/report/chart.h"

namespace qna::report {

// After the seventh curve the colours return with dashes.
inline constexpr size_t kCurveColors = 7;
bool is_dashed(size_t curve);

// The drawing area.
struct Plot {
  double left, top, right, bottom;
  Axis x, y;

  double across(double at) const { return left + (right - left) * x.place(at); }
  double down(double value) const { return bottom - (bottom - top) * y.place(value); }
};

// Neighbours on a curve that share a column of pixels; most often one point alone.
struct Column {
  double x, y, top, bottom;           // on the drawing: their mean, and how far they reach
  double at, value, lowest, highest;  // what it stands for
  int64_t points = 1;
};

struct LegendEntry {
  double x, y;  // the left end of a line of kLegendMark; its name stands behind it
  std::string name;
};
inline constexpr double kLegendMark = 16, kLegendName = 22;

struct ChartLayout {
  double width, height;
  Plot plot;
  std::vector<LegendEntry> legend;  // one for every curve, or none
  std::vector<Tick> across, up;     // along the axes
  std::string title, x_label, y_label;
  double margin;  // left of title and legend
};

// Throws qna::Error that begins with `where` if the chart is not sane.
ChartLayout lay_out(const Chart& chart, std::string_view where);

// The parts of a curve between gaps.
std::vector<std::vector<Column>> runs_of(const Curve& curve, const Plot& plot);

// The order in which to draw: strong curves last.
std::vector<size_t> drawing_order(const Chart& chart);

}  // namespace qna::report
