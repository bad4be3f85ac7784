#include "qna/sweep/result.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/base/text.h"
#include "qna/format/fields.h"
#include "qna/report/comparison.h"
#include "qna/report/json_lines.h"

namespace qna::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string record_path(const std::string& run_folder) {
  return (fs::path(run_folder) / "sweep.json").string();
}

std::string measure_path(const std::string& run_folder, const Measure& measure) {
  return (fs::path(run_folder) / fmt::format("measure-{}.json", measure.name)).string();
}

// null where there is no such file.
json read_json(const std::string& path) {
  if (!fs::exists(path)) return nullptr;
  return format::parse_json(read_file(path), path);
}

// A folder of an earlier sweep would fill the table with numbers of other runs.
void check_recipe_of(const std::string& folder, const train::Recipe& recipe) {
  const std::string path = (fs::path(folder) / "recipe.toml").string();
  std::error_code error;
  if (!fs::exists(path, error)) return;
  const std::vector<std::string> keys = differences(train::read_recipe(path), recipe);
  check(keys.empty(),
        "{}: the run there was made with another {}; remove the folder, or choose another by --out",
        folder, fmt::join(keys, ", "));
}

double median(std::vector<double> values) {
  if (values.empty()) return kNone;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// All numbers of the object, those of classes as "classes.NAME.NUMBER".
std::map<std::string, double> numbers_in(const json& object) {
  std::map<std::string, double> numbers;
  const auto add = [&](const json& from, const std::string& prefix) {
    for (const auto& [key, value] : from.items()) {
      if (value.is_number()) numbers[prefix + key] = value.get<double>();
    }
  };
  add(object, "");
  for (const json& row : object.value("classes", json::array())) {
    add(row, "classes." + row.value("name", std::string()) + ".");
  }
  return numbers;
}

void add_number(RunResult& result, const std::string& name, const json& object,
                const std::string& where) {
  const std::map<std::string, double> numbers = numbers_in(object);
  if (const auto found = numbers.find(name); found != numbers.end()) {
    result.numbers[name] = found->second;
    return;
  }
  std::vector<std::string> known;
  for (const auto& [key, value] : numbers) known.push_back(key);
  fail("{}: there is no number '{}'{} It has {}", where, name,
       did_you_mean(name, known).empty() ? ";" : did_you_mean(name, known), fmt::join(known, ", "));
}

std::string taken_path(const std::string& run_folder) {
  return (fs::path(run_folder) / "taken.json").string();
}

// A result that was taken over, if there is one.
RunResult read_taken(const Sweep& sweep, const Run& run, const std::string& run_folder) {
  RunResult result;
  const std::string path = taken_path(run_folder);
  const json object = read_json(path);
  if (object.is_null()) return result;
  const format::Fields fields(object, path);
  std::string recipe;
  fields("recipe", recipe);
  check(recipe == run.fingerprint,
        "{}: the result that was taken over there is of another recipe, data set or start; remove "
        "the folder, or choose another by --out",
        run_folder);
  const json numbers = object.value("numbers", json::object());
  for (const std::string& name : sweep.numbers()) {
    if (!numbers.contains(name)) return {};
    add_number(result, name, numbers, path);
  }
  fields("seconds", result.seconds);
  fields("images_per_second", result.images_per_second);
  fields("peak_memory_mb", result.peak_memory_mb);
  result.recipe = recipe;
  result.trained = result.finished = true;
  return result;
}

// The numbers of the last epoch, and the speed.
void read_log(const Sweep& sweep, const std::string& run_folder, RunResult& result) {
  const std::string path = report::run_log_path(run_folder);
  json metrics;
  std::vector<double> speeds;
  for (const json& line : report::read_json_lines(path)) {
    if (line.contains("images_per_second") && line["images_per_second"].is_number()) {
      speeds.push_back(line["images_per_second"].get<double>());
    }
    if (line.value("kind", "") != "epoch") continue;
    result.seconds = line.value("seconds", kNone);
    if (line.contains("metrics")) metrics = line["metrics"];
  }
  check(metrics.is_object(), "{}: a finished run has no metrics in it", path);
  add_number(result, sweep.question.metric, metrics, path);
  for (const std::string& name : sweep.question.also) add_number(result, name, metrics, path);
  result.images_per_second = median(std::move(speeds));
}

}  // namespace

Record read_record(const std::string& run_folder) {
  Record record;
  const json object = read_json(record_path(run_folder));
  if (object.is_null()) return record;
  const format::Fields fields(object, record_path(run_folder));
  fields("recipe", record.recipe);
  fields("trained", record.trained);
  fields("peak_memory_mb", record.peak_memory_mb);
  return record;
}

void write_record(const std::string& run_folder, const Record& record) {
  const json object = {{"recipe", record.recipe},
                       {"trained", record.trained},
                       {"peak_memory_mb", record.peak_memory_mb}};
  write_file(record_path(run_folder), object.dump() + "\n");
}

bool is_measured(const Measure& measure, const std::string& run_folder) {
  const json object = read_json(measure_path(run_folder, measure));
  return object.is_object() && object.value("eval", json()) == json(measure.eval);
}

void write_measure(const std::string& run_folder, const Measure& measure, const json& numbers) {
  const json object = {{"eval", measure.eval}, {"numbers", numbers}};
  write_file(measure_path(run_folder, measure), object.dump() + "\n");
}

void write_taken(const std::string& run_folder, const Run& run, const RunResult& result) {
  json object = {{"recipe", run.fingerprint}, {"numbers", result.numbers}};
  const auto add = [&](const char* name, double value) {
    if (std::isfinite(value)) object[name] = value;
  };
  add("seconds", result.seconds);
  add("images_per_second", result.images_per_second);
  add("peak_memory_mb", result.peak_memory_mb);
  fs::create_directories(run_folder);
  write_file(taken_path(run_folder), object.dump() + "\n");
}

RunResult read_result(const Sweep& sweep, const Run& run, const std::string& folder) {
  const std::string own = (fs::path(folder) / run.folder).string();
  RunResult result;
  check_recipe_of(own, run.recipe);
  const Record record = read_record(own);
  if (!record.trained) return read_taken(sweep, run, own);
  result.trained = true;
  result.finished = true;
  // What was begun is what came out, whatever the files that the recipe names hold today.
  result.recipe = record.recipe.empty() ? run.fingerprint : record.recipe;
  if (record.peak_memory_mb > 0) result.peak_memory_mb = record.peak_memory_mb;
  read_log(sweep, own, result);
  for (const Measure& measure : sweep.measures) {
    if (!is_measured(measure, own)) {
      result.finished = false;
      continue;
    }
    const std::string path = measure_path(own, measure);
    const json object = read_json(path);
    for (const std::string& name : measure.numbers) {
      add_number(result, name, object.value("numbers", json::object()), path);
    }
  }
  return result;
}

std::vector<RowResult> row_results(const Sweep& sweep, const std::vector<RunResult>& runs) {
  std::vector<RowResult> rows(sweep.rows.size());
  std::vector<std::vector<double>> seconds(rows.size()), speeds(rows.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t place = sweep.runs[i].row;
    RowResult& row = rows[place];
    if (!runs[i].trained) continue;
    for (const auto& [name, value] : runs[i].numbers) row.values[name].push_back(value);
    seconds[place].push_back(runs[i].seconds);
    speeds[place].push_back(runs[i].images_per_second);
    row.peak_memory_mb = std::fmax(row.peak_memory_mb, runs[i].peak_memory_mb);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [name, values] : rows[i].values) rows[i].numbers[name] = statistics(values);
    rows[i].seconds = statistics(seconds[i]);
    rows[i].images_per_second = statistics(speeds[i]);
  }
  return rows;
}

}  // namespace qna::sweep
