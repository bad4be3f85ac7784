#include "qna/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "qna/report/chart_layout.h"
#include "qna/report/html.h"

namespace qna::report {
namespace {

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
.qna-chart .strong { stroke-width: 3.4; }
.qna-chart .band { opacity: 0.25; } .qna-chart .dashed { stroke-dasharray: 5 4; } .qna-chart .hit { opacity: 0; }
.qna-chart .hit:hover { opacity: 1; }
)";

std::string text_tag(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     escape(text));
}

std::string color(size_t curve) { return fmt::format("var(--c{})", curve % kCurveColors); }

// The classes of a curve's line.
std::string line_class(const Chart& chart, size_t curve) {
  return fmt::format("curve{}{}", chart.curves[curve].strong ? " strong" : "",
                     is_dashed(curve) ? " dashed" : "");
}

std::string draw_legend(const Chart& chart, const ChartLayout& layout) {
  std::string svg;
  for (size_t i = 0; i < layout.legend.size(); ++i) {
    const LegendEntry& entry = layout.legend[i];
    fmt::format_to(std::back_inserter(svg),
                   "<path class=\"{}\" stroke=\"{}\" d=\"M{:.1f} {:.1f}h{}\"/>\n",
                   line_class(chart, i), color(i), entry.x, entry.y, kLegendMark);
    svg += text_tag(entry.x + kLegendName, entry.y + 4.5, " class=\"name\"", entry.name);
  }
  return svg;
}

void add_corner(std::string& path, double x, double y) {
  fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x, y);
}

std::string dot(const Column& column, size_t index) {
  return fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                     column.x, column.y, color(index));
}

std::string draw_run(const Chart& chart, const std::vector<Column>& run, size_t index) {
  if (run.size() == 1 && run[0].points == 1) return dot(run[0], index);
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
  std::string svg = fmt::format("{}<path class=\"{}\" stroke=\"{}\" d=\"{}\"/>\n", band,
                                line_class(chart, index), color(index), line);
  if (chart.dots) {
    for (const Column& column : run) svg += dot(column, index);
  }
  return svg;
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
    svg += draw_run(chart, run, index);
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

std::string draw_axes(const ChartLayout& layout) {
  const Plot& plot = layout.plot;
  std::string svg;
  const auto line = [&](const char* kind, double x1, double y1, double x2, double y2) {
    fmt::format_to(std::back_inserter(svg),
                   "<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", kind, x1, y1, x2,
                   y2);
  };
  for (const Tick& tick : layout.up) {
    const double y = plot.down(tick.value);
    line("grid", plot.left, y, plot.right, y);
    svg += text_tag(plot.left - 7, y + 4.5, " text-anchor=\"end\"", tick.label);
  }
  for (const Tick& tick : layout.across) {
    const double x = plot.across(tick.value);
    line("axis", x, plot.bottom, x, plot.bottom + 4);
    svg += text_tag(x, plot.bottom + 18, " text-anchor=\"middle\"", tick.label);
  }
  line("axis", plot.left, plot.bottom, plot.right, plot.bottom);
  if (!layout.x_label.empty()) {
    svg += text_tag((plot.left + plot.right) / 2, plot.bottom + 36, " text-anchor=\"middle\"",
                    layout.x_label);
  }
  if (!layout.y_label.empty()) {
    const double y = (plot.top + plot.bottom) / 2;
    svg += text_tag(13, y,
                    fmt::format(" text-anchor=\"middle\" transform=\"rotate(-90 13 {:.1f})\"", y),
                    layout.y_label);
  }
  return svg;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  const ChartLayout layout = lay_out(chart, "to_svg");
  const Plot& plot = layout.plot;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"qna-chart\" viewBox=\"0 0 {} {:.0f}\" "
      "role=\"img\" aria-label=\"{}\">\n<style>{}</style>\n",
      layout.width, layout.height, escape(chart.title), kStyle);
  if (!chart.title.empty()) {
    svg += text_tag(layout.margin, 16, " class=\"title\"", layout.title);
  }
  svg += draw_legend(chart, layout);
  svg += draw_axes(layout);
  bool empty = true;
  for (const size_t i : drawing_order(chart)) {
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

std::string chart_grid(const std::vector<Chart>& charts) {
  std::string html = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) {
    html += fmt::format("<div class=\"card\">\n{}</div>\n", to_svg(chart));
  }
  return html + "</div>\n";
}

}  // namespace qna::report
