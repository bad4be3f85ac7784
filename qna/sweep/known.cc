#include "qna/sweep/known.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/format/csv.h"

namespace qna::sweep {
namespace {

namespace fs = std::filesystem;

// Empty where a number is not known.
double number_of(const std::string& text, const std::string& path) {
  if (text.empty()) return kNone;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && std::isfinite(value),
        "{}: '{}' is not a number", path, text);
  return value;
}

std::vector<fs::path> tables_in(const fs::path& folder) {
  std::vector<fs::path> tables;
  const auto take = [&](const fs::path& place) {
    std::error_code error;
    if (fs::is_regular_file(place / "runs.csv", error)) tables.push_back(place / "runs.csv");
  };
  take(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) take(entry.path());
  std::ranges::sort(tables);
  return tables;
}

}  // namespace

void KnownRuns::add(const RunResult& result) {
  const auto [place, is_new] = by_fingerprint_.try_emplace(result.recipe, result);
  // Another sweep asks for other numbers of the same run.
  if (!is_new) place->second.numbers.insert(result.numbers.begin(), result.numbers.end());
}

void KnownRuns::read(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::vector<fs::path> tables = tables_in(path);
    check(!tables.empty(), "{}: there is no runs.csv in this folder, nor in the folders in it",
          path);
    for (const fs::path& table : tables) read(table.string());
    return;
  }
  const auto lines = format::parse_csv(read_file(path), path);
  constexpr size_t kNumbers = 3;  // the first behind row, seed and recipe
  check(!lines.empty() && lines[0].size() > kNumbers && lines[0][2] == "recipe",
        "{}: it must begin with row,seed,recipe, as the runs.csv of a sweep does", path);
  for (size_t i = 1; i < lines.size(); ++i) {
    RunResult result{.trained = true, .finished = true, .recipe = lines[i][2]};
    for (size_t column = kNumbers; column < lines[i].size(); ++column) {
      const std::string& name = lines[0][column];
      const double value = number_of(lines[i][column], path);
      if (name == "images_per_second") {
        result.images_per_second = value;
      } else if (name == "minutes") {
        result.seconds = 60 * value;
      } else if (name == "peak_memory_mb") {
        result.peak_memory_mb = value;
      } else if (std::isfinite(value)) {
        result.numbers[name] = value;
      }
    }
    add(result);
  }
}

std::optional<RunResult> KnownRuns::find(const Sweep& sweep, const Run& run) const {
  const auto found = by_fingerprint_.find(run.fingerprint);
  if (found == by_fingerprint_.end()) return std::nullopt;
  RunResult result = found->second;
  result.numbers.clear();
  for (const std::string& name : sweep.numbers()) {
    const auto number = found->second.numbers.find(name);
    if (number == found->second.numbers.end()) return std::nullopt;
    result.numbers.insert(*number);
  }
  return result;
}

}  // namespace qna::sweep
