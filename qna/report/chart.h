// Line charts as SVG, to stand in a page or alone in a file.
#pragma once

#include <string>
#include <vector>

#include "qna/report/axis.h"

namespace qna::report {

// y[i] at x[i], joined in this order. Where one of the two cannot be shown, as NaN never can, the
// line has a gap; a point between two gaps is a dot.
struct Curve {
  std::string name = {};
  std::vector<double> x = {};
  std::vector<double> y = {};
  bool strong = false;  // a thicker line, drawn over the others
};

struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Curve> curves = {};
  Scale x_scale = Scale::kLinear;
  Scale y_scale = Scale::kLinear;
  std::vector<Tick> x_ticks = {};  // where the numbers have names; none: round numbers
  bool dots = false;               // on every point, for curves of few
  double width = 440;              // in pixels of a screen that is neither small nor fine
  double plot_height = 216;        // without title, legend and labels
};

// Colours that the colour-blind can tell apart too, light or dark as the reader's system is. Names
// in a legend, numbers where the pointer rests. Where several points of a curve share a column of
// pixels the line goes through their mean, and a light band shows how far they reach; so the size
// of the SVG does not depend on the number of points.
std::string to_svg(const Chart& chart);

// Several side by side, as HTML.
std::string chart_grid(const std::vector<Chart>& charts);

}  // namespace qna::report
