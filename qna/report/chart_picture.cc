#include <algorithm>
#include <cmath>

#include "qna/report/chart.h"
#include "qna/report/chart_layout.h"
#include "qna/viz/draw.h"
#include "qna/viz/line.h"
#include "qna/viz/text.h"

namespace qna::report {
namespace {

using image::Image;
using viz::Color;
using viz::Point;

// The light colours of the SVG.
constexpr Color kPaper = {255, 255, 255}, kInk = {0x1c, 0x21, 0x27}, kSoft = {0x5d, 0x67, 0x73},
                kGrid = {0xe4, 0xe8, 0xec}, kAxis = {0xaa, 0xb2, 0xbb};
constexpr Color kColors[kCurveColors] = {{0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}, {0x00, 0x9e, 0x73},
                                         {0xcc, 0x79, 0xa7}, {0xe6, 0x9f, 0x00}, {0x56, 0xb4, 0xe9},
                                         {0x6e, 0x77, 0x81}};

// How much of a text's width lies left of its place.
enum class Anchor { kStart, kMiddle, kEnd };

// `y` is the middle of the line.
void write(Image& image, double x, double y, const std::string& text, Color color,
           Anchor anchor = Anchor::kStart) {
  const auto width = static_cast<double>(viz::text_width(text));
  const double left = anchor == Anchor::kStart ? x
                      : anchor == Anchor::kEnd ? x - width
                                               : x - width / 2;
  viz::draw_text(image, std::lround(y - viz::kTextHeight / 2.0), std::lround(left), text, color);
}

// There is one weight of letters: bold ones are drawn twice.
void write_bold(Image& image, double x, double y, const std::string& text, Color color) {
  write(image, x, y, text, color);
  write(image, x + 1, y, text, color);
}

// From below to above, around the middle (x, y).
void write_upwards(Image& image, double x, double y, const std::string& text, Color color) {
  const int64_t length = viz::text_width(text);
  if (length == 0) return;
  Image line = viz::blank(viz::kTextHeight, length, kPaper);
  viz::draw_text(line, 0, 0, text, color);
  Image turned = viz::blank(length, viz::kTextHeight, kPaper);
  for (int64_t row = 0; row < length; ++row)
    for (int64_t column = 0; column < viz::kTextHeight; ++column) {
      std::copy_n(line.row(column) + 3 * (length - 1 - row), 3, turned.row(row) + 3 * column);
    }
  const int64_t top = std::max<int64_t>(std::lround(y) - length / 2, 0);
  const int64_t left = std::max<int64_t>(std::lround(x) - viz::kTextHeight / 2, 0);
  viz::paste(image, turned, std::min(top, image.height - length), left);
}

// On whole pixels, so that it is one pixel wide.
void rule(Image& image, double x1, double y1, double x2, double y2, Color color) {
  const auto snap = [](double value) { return std::floor(value) + 0.5; };
  const Point ends[] = {{snap(x1), snap(y1)}, {snap(x2), snap(y2)}};
  viz::draw_line(image, ends, 1, color);
}

void draw_axes(Image& image, const ChartLayout& layout) {
  const Plot& plot = layout.plot;
  for (const Tick& tick : layout.up) {
    const double y = plot.down(tick.value);
    rule(image, plot.left, y, plot.right, y, kGrid);
    write(image, plot.left - 7, y, tick.label, kSoft, Anchor::kEnd);
  }
  for (const Tick& tick : layout.across) {
    const double x = plot.across(tick.value);
    rule(image, x, plot.bottom, x, plot.bottom + 4, kAxis);
    write(image, x, plot.bottom + 13, tick.label, kSoft, Anchor::kMiddle);
  }
  rule(image, plot.left, plot.bottom, plot.right, plot.bottom, kAxis);
  write(image, (plot.left + plot.right) / 2, plot.bottom + 31, layout.x_label, kSoft,
        Anchor::kMiddle);
  write_upwards(image, 9, (plot.top + plot.bottom) / 2, layout.y_label, kSoft);
}

void draw_stroke(Image& image, const std::vector<Point>& points, const Curve& curve, size_t index) {
  const double width = curve.strong ? 3.4 : 1.8;
  const Color color = kColors[index % kCurveColors];
  if (!is_dashed(index)) return viz::draw_line(image, points, width, color);
  for (const std::vector<Point>& piece : viz::dashes(points, 5, 5)) {
    viz::draw_line(image, piece, width, color);
  }
}

void draw_legend(Image& image, const Chart& chart, const ChartLayout& layout) {
  for (size_t i = 0; i < layout.legend.size(); ++i) {
    const LegendEntry& entry = layout.legend[i];
    draw_stroke(image, {{entry.x + 1, entry.y}, {entry.x + kLegendMark, entry.y}}, chart.curves[i],
                i);
    write(image, entry.x + kLegendName, entry.y, entry.name, kInk);
  }
}

void draw_curve(Image& image, const Chart& chart, size_t index, const Plot& plot) {
  const Curve& curve = chart.curves[index];
  for (const std::vector<Column>& run : runs_of(curve, plot)) {
    std::vector<Point> points;
    for (const Column& column : run) points.push_back({column.x, column.y});
    draw_stroke(image, points, curve, index);
    if (!chart.dots && run.size() > 1) continue;
    for (const Point& point : points) {
      viz::draw_disc(image, point, curve.strong ? 4 : 3, kColors[index % kCurveColors]);
    }
  }
}

}  // namespace

image::Image to_picture(const Chart& chart) {
  const ChartLayout layout = lay_out(chart, "to_picture");
  Image image = viz::blank(std::lround(layout.height), std::lround(layout.width), kPaper);
  write_bold(image, layout.margin, 11, layout.title, kInk);
  draw_legend(image, chart, layout);
  draw_axes(image, layout);
  for (const size_t i : drawing_order(chart)) draw_curve(image, chart, i, layout.plot);
  return image;
}

}  // namespace qna::report
