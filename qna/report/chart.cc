#include "qna/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "qna/base/error.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

// In the units of the drawing. A phone shows it at about three quarters of this size, so the
// letters are a bit large.
constexpr double kWidth = 440, kPlotHeight = 216, kLetter = 7, kLine = 18;
constexpr double kLeft = 4, kRight = 14;
constexpr size_t kColors = 7;
constexpr size_t kMostHoverPoints = 80;

// Okabe and Ito's colours, without their yellow on white and with lighter ones on black. After the
// seventh curve they return with dashes.
constexpr std::string_view kStyle = R"(
.qna-chart { --ink: #1c2127; --soft: #5d6773; --grid: #e4e8ec; --axis: #aab2bb; --c0: #0072b2;
 --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9; --c6: #6e7781;
 font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
@media screen and (prefers-color-scheme: dark) { .qna-chart { --ink: #e4e8ed; --soft: #98a3b0;
 --grid: #262c34; --axis: #56606b; --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79a; --c3: #e39ac4;
 --c4: #f0c929; --c5: #7d97f4; --c6: #a3abb5; } }
.qna-chart text { fill: var(--soft); } .qna-chart .title { fill: var(--ink); font-weight: 650;
 font-size: 14.5px; } .qna-chart .name { fill: var(--ink); }
.qna-chart .grid { stroke: var(--grid); } .qna-chart .axis { stroke: var(--axis); }
.qna-chart .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.qna-chart .band { opacity: 0.25; } .qna-chart .dashed { stroke-dasharray: 5 4; } .qna-chart .hit { opacity: 0; }
.qna-chart .hit:hover { opacity: 1; }
)";

std::string text_tag(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     escape(text));
}

// Letters, not bytes: those that do not continue another.
size_t letters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// At most `most` letters, the last of them an ellipsis where some are missing.
std::string shortened(std::string_view bytes, double width) {
  const std::string text = valid_utf8(bytes);
  const auto most = static_cast<size_t>(std::max(2.0, width / kLetter));
  if (letters(text) <= most) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && seen++ == most - 1) break;
  }
  return text.substr(0, end) + "\xe2\x80\xa6";
}

std::string color(size_t curve) { return fmt::format("var(--c{})", curve % kColors); }
std::string_view dashes(size_t curve) { return curve % (2 * kColors) < kColors ? "" : " dashed"; }

struct Legend {
  std::string svg;
  double height = 0;
};

// Rows of a short line and a name each, from `top` on. A single curve needs none if the chart's
// title says what it is.
Legend draw_legend(const Chart& chart, double top) {
  constexpr double kMark = 22, kGap = 14;
  Legend legend;
  if (chart.curves.size() < 2) return legend;
  double x = kLeft, y = top + kLine / 2;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const std::string name = shortened(chart.curves[i].name, kWidth - kLeft - kRight - kMark);
    const double width = kMark + kLetter * static_cast<double>(letters(name)) + kGap;
    if (x > kLeft && x + width - kGap > kWidth - kRight) {
      x = kLeft;
      y += kLine;
    }
    fmt::format_to(std::back_inserter(legend.svg),
                   "<path class=\"curve{}\" stroke=\"{}\" d=\"M{:.1f} {:.1f}h16\"/>\n", dashes(i),
                   color(i), x, y);
    legend.svg += text_tag(x + kMark, y + 4.5, " class=\"name\"", name);
    x += width;
  }
  legend.height = y + kLine / 2 - top + 4;
  return legend;
}

// Neighbours on a curve that share a column of pixels; most often one point alone.
struct Column {
  double x, y, top, bottom;           // on the drawing: their mean, and how far they reach
  double at, value, lowest, highest;  // what it stands for
  int64_t points = 1;
};

// The drawing area, with y growing downwards.
struct Plot {
  double left, top, right, bottom;
  Axis x, y;

  double across(double at) const { return left + (right - left) * x.place(at); }
  double down(double value) const { return bottom - (bottom - top) * y.place(value); }
};

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

// The parts of a curve between gaps.
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

void add_corner(std::string& path, double x, double y) {
  fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x, y);
}

std::string draw_run(const std::vector<Column>& run, size_t index) {
  if (run.size() == 1 && run[0].points == 1) {
    return fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                       run[0].x, run[0].y, color(index));
  }
  std::string line, band;
  for (const Column& column : run) add_corner(line, column.x, column.y);
  if (run.size() == 1) add_corner(line, run[0].x + 1, run[0].y);
  const bool dense =
      std::any_of(run.begin(), run.end(), [](const Column& c) { return c.points > 1; });
  if (dense) {
    for (const Column& column : run) add_corner(band, column.x, column.top);
    for (auto column = run.rbegin(); column != run.rend(); ++column) {
      add_corner(band, column->x, column->bottom);
    }
    band = fmt::format("<path class=\"band\" fill=\"{}\" d=\"{}Z\"/>\n", color(index), band);
  }
  return fmt::format("{}<path class=\"curve{}\" stroke=\"{}\" d=\"{}\"/>\n", band, dashes(index),
                     color(index), line);
}

// "training: 0.52 at epoch 3", with the range of a dense column.
std::string hover_text(const Chart& chart, const Curve& curve, const Column& column) {
  const std::string range =
      column.points == 1
          ? ""
          : fmt::format(" ({} to {})", short_number(column.lowest), short_number(column.highest));
  return fmt::format("{}{}{}{} at {} {}", curve.name, curve.name.empty() ? "" : ": ",
                     short_number(column.value), range, chart.x_label.empty() ? "x" : chart.x_label,
                     short_number(column.at));
}

std::string draw_curve(const Chart& chart, size_t index, const Plot& plot) {
  const Curve& curve = chart.curves[index];
  std::string svg;
  std::vector<Column> columns;
  for (const std::vector<Column>& run : runs_of(curve, plot)) {
    svg += draw_run(run, index);
    columns.insert(columns.end(), run.begin(), run.end());
  }
  // Evenly spread, the last one always among them.
  const size_t count = std::min(columns.size(), kMostHoverPoints);
  for (size_t i = 0; i < count; ++i) {
    const Column& column =
        columns[count == 1 ? columns.size() - 1 : i * (columns.size() - 1) / (count - 1)];
    fmt::format_to(std::back_inserter(svg),
                   "<circle class=\"hit\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\">"
                   "<title>{}</title></circle>\n",
                   column.x, column.y, color(index), escape(hover_text(chart, curve, column)));
  }
  return svg;
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

std::string draw_axes(const Chart& chart, const Plot& plot, const std::vector<Tick>& across,
                      const std::vector<Tick>& up) {
  std::string svg;
  const auto line = [&](const char* kind, double x1, double y1, double x2, double y2) {
    fmt::format_to(std::back_inserter(svg),
                   "<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", kind, x1, y1, x2,
                   y2);
  };
  for (const Tick& tick : up) {
    const double y = plot.down(tick.value);
    line("grid", plot.left, y, plot.right, y);
    svg += text_tag(plot.left - 7, y + 4.5, " text-anchor=\"end\"", tick.label);
  }
  for (const Tick& tick : across) {
    const double x = plot.across(tick.value);
    line("axis", x, plot.bottom, x, plot.bottom + 4);
    svg += text_tag(x, plot.bottom + 18, " text-anchor=\"middle\"", tick.label);
  }
  line("axis", plot.left, plot.bottom, plot.right, plot.bottom);
  if (!chart.x_label.empty()) {
    svg += text_tag((plot.left + plot.right) / 2, plot.bottom + 36, " text-anchor=\"middle\"",
                    shortened(chart.x_label, plot.right - plot.left));
  }
  if (!chart.y_label.empty()) {
    const double y = (plot.top + plot.bottom) / 2;
    svg += text_tag(13, y,
                    fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 13 {:.1f})\"", y),
                    shortened(chart.y_label, plot.bottom - plot.top));
  }
  return svg;
}

void check_chart(const Chart& chart) {
  for (const Curve& curve : chart.curves) {
    check(curve.x.size() == curve.y.size(),
          "to_svg: x and y of curve '{}' must be equally long, got {} and {}", curve.name,
          curve.x.size(), curve.y.size());
  }
}

}  // namespace

std::string to_svg(const Chart& chart) {
  check_chart(chart);
  const double title_height = chart.title.empty() ? 0 : 26;
  const Legend legend = draw_legend(chart, title_height);
  const double top = title_height + legend.height + 10;

  Plot plot{.left = 0,
            .top = top,
            .right = kWidth - kRight,
            .bottom = top + kPlotHeight,
            .x = axis_of(chart, &Curve::x, chart.x_scale),
            .y = axis_of(chart, &Curve::y, chart.y_scale)};
  const std::vector<Tick> up = ticks(plot.y, 6);
  size_t longest = 1;
  for (const Tick& tick : up) longest = std::max(longest, tick.label.size());
  plot.left = 14 + kLetter * static_cast<double>(longest) + (chart.y_label.empty() ? 0 : 16);
  std::vector<Tick> across = ticks(plot.x, 7);
  // Long labels get the room they need.
  for (int most = 6; most >= 3; --most) {
    size_t length = 0;
    for (const Tick& tick : across) length += tick.label.size() + 2;
    if (kLetter * static_cast<double>(length) <= plot.right - plot.left) break;
    across = ticks(plot.x, most);
  }

  const double height = plot.bottom + (chart.x_label.empty() ? 26 : 44);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"qna-chart\" viewBox=\"0 0 {} {:.0f}\" "
      "role=\"img\" aria-label=\"{}\">\n<style>{}</style>\n",
      kWidth, height, escape(chart.title), kStyle);
  if (!chart.title.empty()) {
    // Bold and larger letters than those that kLetter is for.
    svg += text_tag(kLeft, 16, " class=\"title\"",
                    shortened(chart.title, (kWidth - kLeft - kRight) / 1.25));
  }
  svg += legend.svg;
  svg += draw_axes(chart, plot, across, up);
  bool empty = true;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const std::string curve = draw_curve(chart, i, plot);
    empty = empty && curve.empty();
    svg += curve;
  }
  if (empty) {
    svg += text_tag((plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2 - 8,
                    " text-anchor=\"middle\"", "no data");
  }
  return svg + "</svg>\n";
}

}  // namespace qna::report
