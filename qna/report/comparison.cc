#include "qna/report/comparison.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "qna/base/error.h"
#include "qna/report/json_lines.h"
#include "qna/report/training_report.h"

namespace qna::report {
namespace {

using nlohmann::json;

// The curves of one run by metric, against epochs, in the order of its log.
using Curves = std::vector<std::pair<std::string, Curve>>;

Curve& curve_of(Curves& curves, const std::string& metric) {
  for (auto& [name, curve] : curves) {
    if (name == metric) return curve;
  }
  return curves.emplace_back(metric, Curve{}).second;
}

void add_point(Curves& curves, const std::string& metric, double epoch, const json& value) {
  if (!value.is_number()) return;
  Curve& curve = curve_of(curves, metric);
  curve.x.push_back(epoch);
  curve.y.push_back(value.get<double>());
}

Curves curves_of(const std::string& folder) {
  Curves curves;
  for (const json& line : read_json_lines(run_log_path(folder))) {
    if (line.value("kind", "") != "epoch") continue;
    const double epoch = line.value("epoch", 0.0);
    if (line.contains("metrics")) {
      for (const auto& [name, value] : line["metrics"].items()) {
        add_point(curves, name, epoch, value);
      }
    }
    if (line.contains("train_loss")) add_point(curves, "training loss", epoch, line["train_loss"]);
  }
  check(!curves.empty(), "{}: no epoch of this run is finished yet", folder);
  return curves;
}

}  // namespace

std::string run_log_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "log.jsonl").string();
}

std::vector<std::string> run_names(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  std::map<std::string, int> times;
  for (const std::string& folder : folders) {
    fs::path path = fs::absolute(folder).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();  // it ended with a slash
    ++times[path.filename().string()];
    paths.push_back(std::move(path));
  }
  std::vector<std::string> names;
  for (const fs::path& path : paths) {
    const fs::path name = path.filename();
    names.push_back(times[name.string()] == 1 ? name.string()
                                              : (path.parent_path().filename() / name).string());
  }
  return names;
}

TrainingReport compare_runs(const std::vector<std::string>& folders) {
  TrainingReport page{.title = "Comparison of runs"};
  const std::vector<std::string> names = run_names(folders);
  for (size_t i = 0; i < folders.size(); ++i) {
    std::vector<std::string> ends;
    for (auto& [metric, curve] : curves_of(folders[i])) {
      auto chart = std::find_if(page.charts.begin(), page.charts.end(),
                                [&](const Chart& c) { return c.title == metric; });
      if (chart == page.charts.end()) {
        page.charts.push_back({.title = metric, .x_label = "epoch", .dots = curve.x.size() < 20});
        chart = page.charts.end() - 1;
      }
      ends.push_back(fmt::format("{} {:.5g}", metric, curve.y.back()));
      curve.name = names[i];
      chart->curves.push_back(std::move(curve));
    }
    page.notes.push_back(fmt::format("{}: {}", names[i], fmt::join(ends, ", ")));
  }
  return page;
}

}  // namespace qna::report
