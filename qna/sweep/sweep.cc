#include "qna/sweep/sweep.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "qna/base/error.h"
#include "qna/base/fingerprint.h"
#include "qna/base/text.h"
#include "qna/format/fields.h"
#include "qna/format/toml.h"

namespace qna::sweep {
namespace {

namespace fs = std::filesystem;
using format::Fields;
using nlohmann::json;

constexpr size_t kMostRuns = 10000;

// "QnA, 2 queries" -> "qna-2-queries"
std::string folder_name(const std::string& row) {
  std::string out;
  for (const char c : row) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    if (plain || (c == '.' && !out.empty())) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (out.ends_with('-') || out.ends_with('.')) out.pop_back();
  return out;
}

// Tables inside become dotted keys, so that a change of one key leaves its neighbours alone.
void flatten(const json& table, const std::string& path, json& out) {
  for (const auto& [key, value] : table.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.is_object() && !value.empty()) {
      flatten(value, inner, out);
    } else {
      out[inner] = value;
    }
  }
}

json changes(const Fields& table) {
  json out = json::object();
  flatten(table.object(), "", out);
  return out;
}

Question read_question(const Fields& fields, const std::string& name) {
  Question q{.title = name};
  fields("title", q.title);
  fields("text", q.text);
  fields("paper", q.paper);
  fields("metric", q.metric);
  fields("lower_is_better", q.lower_is_better);
  fields("also", q.also);
  fields("against", q.against);
  fields.refuse_unknown();
  const std::vector<std::string> known = {"parameters", "gflops", "images_per_second",
                                          "peak_memory"};
  for (const std::string& each : q.against) {
    check(
        std::ranges::find(known, each) != known.end(),
        "question.against must be some of parameters, gflops, images_per_second, peak_memory, got "
        "'{}'{}",
        each, did_you_mean(each, known));
  }
  return q;
}

std::vector<Row> read_rows(const Fields& fields) {
  std::vector<Row> rows;
  for (const Fields& table : fields.tables("row")) {
    Row row;
    table("name", row.name);
    table("paper", row.paper);
    row.set = changes(table.table("set"));
    table.refuse_unknown();
    check(!row.name.empty(), "row {}: name is missing", rows.size() + 1);
    rows.push_back(std::move(row));
  }
  return rows;
}

// "model.config.stages.*.queries", 4 -> "queries 4"
std::string point_name(const std::string& key, const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return key.substr(key.rfind('.') + 1) + " " + text;
}

// Every row with every value of the key.
std::vector<Row> times(const std::vector<Row>& rows, const std::string& key, const json& values) {
  check(values.is_array() && !values.empty(), "grid.{} must be a list of values, got {}", key,
        values.dump());
  std::vector<Row> out;
  for (const Row& row : rows) {
    check(std::isnan(row.paper), "row '{}': paper must not be given beside a grid", row.name);
    for (const json& value : values) {
      Row& made = out.emplace_back(row);
      made.set[key] = value;
      made.name += (made.name.empty() ? "" : ", ") + point_name(key, value);
    }
    check(out.size() <= kMostRuns, "the grid has more than {} points", kMostRuns);
  }
  return out;
}

std::vector<Row> all_rows(const Fields& fields) {
  std::vector<Row> rows = read_rows(fields);
  const json grid = changes(fields.table("grid"));
  check(!rows.empty() || !grid.empty(), "there must be rows ([[row]]) or a [grid]");
  if (rows.empty()) rows.emplace_back();
  for (const auto& [key, values] : grid.items()) rows = times(rows, key, values);
  std::set<std::string> folders;
  for (const Row& row : rows) {
    const std::string folder = folder_name(row.name);
    check(!folder.empty() && folders.insert(folder).second,
          "the rows' names must differ in letters or digits, got '{}'{}", row.name,
          folder.empty() ? "" : " beside another");
  }
  return rows;
}

std::vector<Measure> read_measures(const Fields& fields) {
  std::vector<Measure> measures;
  for (const Fields& table : fields.tables("measure")) {
    Measure m;
    table("name", m.name);
    table("eval", m.eval);
    table("numbers", m.numbers);
    table.refuse_unknown();
    check(!m.name.empty() && folder_name(m.name) == m.name,
          "measure.name must be small letters, digits and dashes, got '{}'", m.name);
    check(!m.numbers.empty(), "measure '{}': numbers must name what the table shows of it", m.name);
    measures.push_back(std::move(m));
  }
  return measures;
}

std::vector<Claim> read_claims(const Fields& fields, const Sweep& sweep) {
  std::vector<std::string> names;
  for (const Row& row : sweep.rows) names.push_back(row.name);
  const std::vector<std::string> numbers = sweep.numbers();
  const auto check_known = [](const char* key, const std::string& value,
                              const std::vector<std::string>& known) {
    check(std::ranges::find(known, value) != known.end(), "claim.{} must be one of {}, got '{}'{}",
          key, fmt::join(known, "; "), value, did_you_mean(value, known));
  };
  std::vector<Claim> claims;
  for (const Fields& table : fields.tables("claim")) {
    Claim c{.text = {},
            .better = {},
            .than = {},
            .number = sweep.question.metric,
            .lower_is_better = sweep.question.lower_is_better};
    table("text", c.text);
    std::vector<std::string> same;
    table("same", same);
    table("better", c.better);
    std::string no_worse;
    table("no_worse", no_worse);
    table("than", c.than);
    table("number", c.number);
    table("lower_is_better", c.lower_is_better);
    table.refuse_unknown();
    if (!same.empty()) {
      check(same.size() == 2 && c.better.empty() && c.than.empty(),
            "claim '{}': same must name two rows, and better and than none", c.text);
      c.better = same[0];
      c.than = same[1];
      c.same = true;
    }
    if (!no_worse.empty()) {
      check(same.empty() && c.better.empty(),
            "claim '{}': there must be only one of better, no_worse and same", c.text);
      c.better = no_worse;
      c.no_worse = true;
    }
    check(!c.text.empty(), "claim {}: text is missing", claims.size() + 1);
    check_known("better", c.better, names);
    check_known("than", c.than, names);
    check_known("number", c.number, numbers);
    claims.push_back(std::move(c));
  }
  return claims;
}

// `base`: a file beside the sweep, or a name that find_recipe knows.
json read_base(const std::string& base, const std::string& path, const ReadOptions& options) {
  const fs::path beside = fs::path(path).parent_path() / base;
  std::error_code error;
  const bool is_file = fs::is_regular_file(beside, error);
  return to_json(train::read_recipe(is_file ? beside.string() : options.find_recipe(base)));
}

train::Recipe recipe_of(json object, const json& common, const Row& row, int64_t seed,
                        const std::string& path, const std::vector<std::string>& settings) {
  for (const json* set : {&common, &row.set}) {
    for (const auto& [key, value] : set->items()) train::set_value(object, key, value);
  }
  train::resolve_paths(object, path);
  train::change(object, settings);
  object["seed"] = seed;
  return with_absolute_paths(train::recipe_from_json(object));
}

std::string fingerprint_of(const train::Recipe& recipe, const std::vector<Measure>& measures) {
  if (measures.empty()) return fingerprint(recipe);
  Fingerprint all;
  all.add(fingerprint(recipe));
  for (const Measure& measure : measures) all.add(json(measure.eval).dump());
  return all.text();
}

Sweep sweep_from_json(const json& object, const std::string& path, const ReadOptions& options) {
  const Fields fields(object, "sweep");
  Sweep sweep{.name = fs::path(path).stem().string()};
  sweep.question = read_question(fields.table("question"), sweep.name);
  std::string base;
  fields("base", base);
  check(!base.empty(), "base is missing: the recipe that all runs begin with");
  sweep.seeds = {1, 2, 3};
  fields("seeds", sweep.seeds);
  if (!options.seeds.empty()) sweep.seeds = options.seeds;
  check(!sweep.seeds.empty() &&
            std::set(sweep.seeds.begin(), sweep.seeds.end()).size() == sweep.seeds.size(),
        "seeds must be different numbers, got {}", json(sweep.seeds).dump());
  sweep.rows = all_rows(fields);
  sweep.measures = read_measures(fields);
  sweep.claims = read_claims(fields, sweep);
  const json common = changes(fields.table("set"));
  fields.refuse_unknown();
  check(sweep.rows.size() * sweep.seeds.size() <= kMostRuns, "there are more than {} runs",
        kMostRuns);
  const json recipe = read_base(base, path, options);
  for (const int64_t seed : sweep.seeds) {
    for (size_t i = 0; i < sweep.rows.size(); ++i) {
      const Row& row = sweep.rows[i];
      try {
        sweep.runs.push_back(
            {.row = i,
             .seed = seed,
             .folder = fmt::format("{}/seed-{}", folder_name(row.name), seed),
             .recipe = recipe_of(recipe, common, row, seed, path, options.settings)});
      } catch (const Error& error) {
        fail("row '{}': {}", row.name, error.what());
      }
      sweep.runs.back().fingerprint = fingerprint_of(sweep.runs.back().recipe, sweep.measures);
    }
  }
  return sweep;
}

}  // namespace

std::vector<std::string> Sweep::numbers() const {
  std::vector<std::string> out = {question.metric};
  out.insert(out.end(), question.also.begin(), question.also.end());
  for (const Measure& measure : measures) {
    out.insert(out.end(), measure.numbers.begin(), measure.numbers.end());
  }
  return out;
}

Sweep read_sweep(const std::string& path, const ReadOptions& options) {
  const json object = format::read_toml_or_json(path);
  try {
    return sweep_from_json(object, path, options);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace qna::sweep
