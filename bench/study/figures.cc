#include "bench/study/figures.h"

#include <fmt/format.h>

#include <filesystem>

#include "bench/study/fit.h"
#include "bench/study/subjects.h"
#include "qna/base/file.h"

namespace qna::bench::study {
namespace {

// One of each kind, so that the curves can be told apart. The eighth has the first one's colour,
// with dashes.
const char* const kShown[] = {"qna",    "sasa", "py-sasa-compiled", "halo",
                              "window", "conv", "depthwise",        "qna-composite"};

report::Chart chart_of(const Rows& rows, Sweep sweep, const Cost& cost) {
  report::Chart chart{
      .y_scale = report::Scale::kLog, .dots = true, .width = 760, .plot_height = 380};
  for (const char* name : kShown) {
    report::Curve curve{.name = find_subject(name).title, .strong = std::string(name) == "qna"};
    for (const Row& row : rows) {
      if (row.subject != name || !row.measured()) continue;
      curve.x.push_back(value_of(sweep, row.shape));
      curve.y.push_back(cost(row));
    }
    chart.curves.push_back(std::move(curve));
  }
  for (const Row& row : rows) {
    const double at = value_of(sweep, row.shape);
    if (!chart.x_ticks.empty() && chart.x_ticks.back().value == at) continue;
    chart.x_ticks.push_back({at, sweep == Sweep::kPixels
                                     ? fmt::format("{}x{}", row.shape.side, row.shape.side)
                                     : std::to_string(row.shape.kernel)});
  }
  return chart;
}

const char* work(std::string_view pass) {
  return pass == kForward ? "forward pass" : "forward and backward pass";
}

void add_pass(std::vector<Figure>& list, const Rows& rows, std::string_view pass) {
  const Rows kernels = sweep_rows(rows, Sweep::kKernel, pass);
  if (!kernels.empty()) {
    const Case& c = kernels.front().shape;
    const std::string map = fmt::format("map of {} x {} x {}", c.side, c.side, c.dim);
    report::Chart time = chart_of(kernels, Sweep::kKernel, [](const Row& r) { return r.min_ms; });
    time.title = fmt::format("Time of a layer, {}, {}", work(pass), map);
    time.x_label = "side k of the window";
    time.y_label = "milliseconds";
    list.push_back({fmt::format("study-time-window-{}", pass), std::move(time)});
    report::Chart memory = chart_of(kernels, Sweep::kKernel, [](const Row& r) {
      return static_cast<double>(r.extra_bytes) / 1e6;
    });
    memory.title = fmt::format("Extra memory of a layer, {}, {}", work(pass), map);
    memory.x_label = "side k of the window";
    memory.y_label = "MB beyond input, weights and results";
    list.push_back({fmt::format("study-memory-window-{}", pass), std::move(memory)});
  }
  const Rows maps = sweep_rows(rows, Sweep::kPixels, pass);
  if (!maps.empty()) {
    const Case& c = maps.front().shape;
    report::Chart time = chart_of(maps, Sweep::kPixels, [](const Row& r) { return r.min_ms; });
    time.title = fmt::format("Time of a layer, {}, window of {} x {}, {} features", work(pass),
                             c.kernel, c.kernel, c.dim);
    time.x_scale = report::Scale::kLog;
    time.x_label = "pixels of the map";
    time.y_label = "milliseconds";
    list.push_back({fmt::format("study-time-pixels-{}", pass), std::move(time)});
  }
}

}  // namespace

std::vector<Figure> figures(const Rows& rows) {
  std::vector<Figure> list;
  for (const std::string_view pass : {kForward, kTrain}) add_pass(list, rows, pass);
  return list;
}

std::vector<std::string> write_figures(const Rows& rows, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> paths;
  for (const Figure& figure : figures(rows)) {
    paths.push_back((std::filesystem::path(folder) / (figure.name + ".svg")).string());
    write_file(paths.back(), report::to_svg(figure.chart));
  }
  return paths;
}

}  // namespace qna::bench::study
