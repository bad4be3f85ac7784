#include "qna/train/comparison.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "qna/base/error.h"
#include "qna/report/json_lines.h"
#include "qna/report/training_report.h"
#include "qna/train/run_log.h"

namespace qna::train {
namespace {

using nlohmann::json;

// The curves of one run by metric, against epochs, in the order of its log.
using Curves = std::vector<std::pair<std::string, report::Curve>>;

report::Curve& curve_of(Curves& curves, const std::string& metric) {
  for (auto& [name, curve] : curves) {
    if (name == metric) return curve;
  }
  return curves.emplace_back(metric, report::Curve{}).second;
}

void add_point(Curves& curves, const std::string& metric, double epoch, const json& value) {
  if (!value.is_number()) return;
  report::Curve& curve = curve_of(curves, metric);
  curve.x.push_back(epoch);
  curve.y.push_back(value.get<double>());
}

Curves curves_of(const std::string& folder) {
  Curves curves;
  for (const json& line : report::read_json_lines(RunLog::path(folder))) {
    if (line.value("kind", "") != "epoch") continue;
    const double epoch = line.value("epoch", 0.0) + 1;
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

std::string name_of(const std::string& folder) {
  const auto path = std::filesystem::path(folder).lexically_normal();
  const std::string name = path.filename().string();
  return name.empty() ? path.parent_path().filename().string() : name;
}

}  // namespace

void write_comparison(const std::string& path, const std::vector<std::string>& folders,
                      const std::vector<viz::Captioned>& pictures) {
  report::TrainingReport page{.title = "Comparison of runs"};
  std::vector<report::Chart> charts;
  for (const std::string& folder : folders) {
    std::string ends;
    for (auto& [metric, curve] : curves_of(folder)) {
      auto chart = std::find_if(charts.begin(), charts.end(),
                                [&](const report::Chart& c) { return c.title == metric; });
      if (chart == charts.end()) {
        charts.push_back({.title = metric, .x_label = "epoch", .dots = curve.x.size() < 20});
        chart = charts.end() - 1;
      }
      ends += fmt::format("{}{} {:.5g}", ends.empty() ? "" : ", ", metric, curve.y.back());
      curve.name = name_of(folder);
      chart->curves.push_back(std::move(curve));
    }
    page.notes.push_back(fmt::format("{}: {}", name_of(folder), ends));
  }
  page.charts = std::move(charts);
  if (!pictures.empty()) page.galleries.push_back({.title = "Pictures", .pictures = pictures});
  report::write_report(path, page);
}

}  // namespace qna::train
