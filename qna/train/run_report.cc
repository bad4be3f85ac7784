#include "qna/train/run_report.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "qna/format/toml.h"
#include "qna/kinds/kind.h"
#include "qna/report/json_lines.h"
#include "qna/report/machine.h"
#include "qna/report/metric_text.h"
#include "qna/report/training_report.h"
#include "qna/tasks/make_task.h"
#include "qna/train/run_log.h"
#include "qna/train/trainer.h"

namespace qna::train {
namespace {

using nlohmann::json;
using report::Curve;

double number(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

void add_point(Curve& curve, double x, double y) {
  curve.x.push_back(x);
  curve.y.push_back(y);
}

// What a metric of any task is measured in.
std::string unit_of(const std::string& metric) {
  if (metric.starts_with("top") || metric.starts_with("AP") || metric.starts_with("AR")) return "%";
  if (metric == "PSNR") return "dB";
  if (metric == "L1" || metric == "MSE") return "of numbers from 0 to 1";
  return metric == "SSIM" ? "1: the same" : "";
}

// The curves of the log. Losses share one chart, every other metric has its own.
std::vector<report::Chart> charts_of(const std::vector<json>& lines, double steps_per_epoch,
                                     const std::string& loss_unit) {
  Curve step_loss{.name = "training, per step"};
  Curve train_loss{.name = "training, per epoch"};
  Curve val_loss{.name = "validation"};
  Curve rate{.name = "learning rate"};
  Curve norm{.name = "gradient norm"};
  Curve speed{.name = "pictures per second"};
  std::map<std::string, Curve> metrics;
  for (const json& line : lines) {
    const double epoch = number(line, "step") / steps_per_epoch;
    if (line.value("kind", "") == "step") {
      add_point(step_loss, epoch, number(line, "loss"));
      add_point(rate, epoch, number(line, "lr"));
      add_point(norm, epoch, number(line, "gradient_norm"));
      add_point(speed, epoch, number(line, "images_per_second"));
      continue;
    }
    add_point(train_loss, epoch, number(line, "train_loss"));
    if (!line.contains("metrics")) continue;
    for (const auto& [name, value] : line["metrics"].items()) {
      if (!value.is_number()) continue;
      Curve& curve = name == "loss" ? val_loss : metrics[name];
      if (name != "loss") curve.name = name;
      add_point(curve, epoch, value.get<double>());
    }
  }
  std::vector<report::Chart> charts;
  const auto add = [&](const std::string& title, const std::string& unit,
                       std::vector<Curve> curves) {
    charts.push_back(
        {.title = title, .x_label = "epoch", .y_label = unit, .curves = std::move(curves)});
  };
  std::vector<Curve> scores;
  for (auto& [name, curve] : metrics) scores.push_back(std::move(curve));
  for (const Curve& score : scores) {
    add("Validation: " + score.name, unit_of(score.name), {score});
  }
  add("Loss", loss_unit, {step_loss, train_loss, val_loss});
  add("Learning rate", "per step", {rate});
  add("Gradient norm", "before clipping", {norm});
  add("Pictures per second", "pictures/s", {speed});
  return charts;
}

}  // namespace

std::string write_run_report(const std::string& folder, const tasks::Task& task,
                             const Recipe& recipe, const RunState& state, bool evaluated) {
  report::TrainingReport page;
  page.title = std::filesystem::path(folder).lexically_normal().filename().string();
  if (page.title.empty()) page.title = "Training run";
  for (const auto& [name, value] : state.metrics.items()) {
    page.summary.emplace_back(name,
                              value.is_number() ? report::metric_text(value.get<double>()) : "nan");
  }
  if (state.best.has_value()) {
    page.summary.emplace_back(
        "best",
        fmt::format("{} in epoch {}", report::metric_text(*state.best), state.best_epoch + 1));
  }
  page.summary.emplace_back("training", fmt::format("{:.1f} min", state.seconds / 60));
  page.summary.emplace_back("epochs", state.epoch < recipe.epochs
                                          ? fmt::format("{} of {}", state.epoch, recipe.epochs)
                                          : fmt::format("{}", state.epoch));
  page.charts = charts_of(report::read_json_lines(RunLog::path(folder)),
                          static_cast<double>(steps_of_epoch(recipe, task)),
                          recipe.task == "classification" ? "cross entropy, nats" : "loss");
  if (evaluated) {
    tasks::add_to_report(page, kinds::row_of_task(recipe.task).kind, task, at::get_num_threads());
  }
  page.recipe = format::to_toml(to_json(recipe));
  page.machine = report::describe(report::this_machine());
  // First of all, before what the evaluation had to say.
  const std::vector<std::string> about = task.describe();
  page.notes.insert(page.notes.begin(), about.begin(), about.end());
  if (!is_finished(state, recipe)) {
    page.notes.push_back(fmt::format(
        "the run is not finished: step {}, in epoch {} of {}; numbers and pictures are of "
        "the last evaluation before",
        state.step, state.epoch + 1, recipe.epochs));
  }
  if (is_finished(state, recipe) && state.epoch < recipe.epochs) {
    page.notes.push_back(fmt::format(
        "the run ended before its {} epochs: the first metric was best in epoch {} (patience)",
        recipe.epochs, state.best_epoch + 1));
  }
  if (state.bad_steps > 0) {
    page.notes.push_back(
        fmt::format("{} steps were skipped: loss or gradient were not finite", state.bad_steps));
  }
  for (const std::string& line : task.broken()) page.notes.push_back("left out  " + line);
  const std::string path = (std::filesystem::path(folder) / "report.html").string();
  report::write_report(path, page);
  return path;
}

}  // namespace qna::train
