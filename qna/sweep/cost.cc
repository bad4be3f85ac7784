#include "qna/sweep/cost.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/format/fields.h"
#include "qna/format/toml.h"
#include "qna/kinds/kind.h"
#include "qna/report/comparison.h"
#include "qna/report/json_lines.h"
#include "qna/sweep/child.h"

namespace qna::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

RowPlan plan_row(const train::Recipe& recipe) {
  const kinds::Plan planned = kinds::row_of_task(recipe.task).plan(recipe);
  const bool says_size = planned.size[0] > 0 && planned.size[1] > 0;
  const std::array<int64_t, 2> size =
      says_size ? planned.size : config::usual_size(planned.network);
  const config::Cost cost =
      config::total_cost(config::layer_costs(planned.network, size[0], size[1]));
  return {.parameters = cost.parameters,
          .gflops = cost.flops / 1e9,
          .images = static_cast<double>(planned.images * recipe.epochs)};
}

// The speed that the log of a run tells at last; not a number before it does.
double logged_speed(const std::string& run_folder) {
  std::error_code error;
  double speed = kNone;
  const std::string path = report::run_log_path(run_folder);
  if (!fs::exists(path, error)) return speed;
  for (const json& line : report::read_json_lines(path)) {
    if (line.value("kind", "") == "step" && line.value("step", 0) > 1) {
      speed = line.value("images_per_second", kNone);
    }
  }
  return speed;
}

// Until the log speaks, the run ends, or two minutes are over.
double watch_speed(Child& child, const std::string& run_folder, const std::atomic<bool>& stop) {
  for (int tenths = 0; tenths < 1200 && !stop; ++tenths) {
    const bool ended = child.ended().has_value();
    const double speed = logged_speed(run_folder);
    if (ended || std::isfinite(speed)) return speed;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return kNone;
}

}  // namespace

std::vector<RowPlan> plan(const Sweep& sweep) {
  std::vector<RowPlan> plans;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    try {
      plans.push_back(plan_row(sweep.runs[i].recipe));  // the first seed's come first
    } catch (const Error& error) {
      fail("{}, row '{}': {}", sweep.name, sweep.rows[i].name, error.what());
    }
  }
  return plans;
}

double measure_speed(const Sweep& sweep, const std::string& folder, const Programs& programs,
                     const std::atomic<bool>& stop) {
  const std::string kept = (fs::path(folder) / "speed.json").string();
  const fs::path probe = fs::path(folder) / ".probe";  // no row is called so
  if (fs::exists(kept)) {
    const json object = format::parse_json(read_file(kept), kept);
    if (object.value("threads", 0) == programs.threads) {
      return object.value("images_per_second", kNone);
    }
  }
  fs::remove_all(probe);
  fs::create_directories(probe);
  const std::string recipe = (probe / "probe.toml").string();
  write_file(recipe, format::to_toml(to_json(sweep.runs.front().recipe)));
  const std::string run = (probe / "run").string();
  double speed = kNone;
  {
    Child child({programs.qna, "train", recipe, "--out", run, "--threads",
                 std::to_string(programs.threads), "--quiet"},
                "/dev/null", (probe / "errors.txt").string());
    speed = watch_speed(child, run, stop);
  }
  fs::remove_all(probe);
  if (std::isfinite(speed)) {
    write_file(kept, json({{"threads", programs.threads}, {"images_per_second", speed}}).dump());
  }
  return speed;
}

void estimate(std::vector<RowPlan>& plans, const std::vector<RowResult>& results, double speed) {
  const auto work = [&](size_t i) { return plans[i].images * plans[i].gflops; };
  double known_seconds = 0, known_work = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (results[i].seconds.count == 0) continue;
    plans[i].seconds = results[i].seconds.mean;
    known_seconds += plans[i].seconds;
    known_work += work(i);
  }
  if (known_work == 0) {
    known_seconds = plans[0].images / speed;
    known_work = work(0);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (results[i].seconds.count == 0) plans[i].seconds = work(i) * known_seconds / known_work;
  }
}

double seconds_left(const Sweep& sweep, const std::vector<RowPlan>& plans,
                    const std::vector<RunResult>& results, int parallel) {
  double sum = 0;
  int64_t runs = 0;
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    if (results[i].trained) continue;
    sum += plans[sweep.runs[i].row].seconds;
    ++runs;
  }
  return sum / static_cast<double>(std::clamp<int64_t>(parallel, 1, std::max<int64_t>(1, runs)));
}

}  // namespace qna::sweep
