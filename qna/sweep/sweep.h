// Many training runs from one file: a recipe, what differs from row to row, and seeds. What is
// asked, and what the paper says of it, stands in the file too.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/recipe/recipe.h"

namespace qna::sweep {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// A line of the table: a change of the recipe, run once per seed.
struct Row {
  std::string name;
  nlohmann::json set = nlohmann::json::object();  // "model.config.stages.*.queries": 4
  double paper = kNone;                           // what the paper has in its place
};

// Numbers that `qna eval` finds in a finished run, beside those of its log.
struct Measure {
  std::string name;
  std::vector<std::string> eval;  // further arguments
  // Of its JSON, that the table shows; "classes.cat.AP" is that of a class.
  std::vector<std::string> numbers;
};

// What is said of two rows: that one is better, that it is no worse, or that they are the same.
struct Claim {
  std::string text;
  std::string better, than;  // names of rows
  bool no_worse = false;
  bool same = false;
  std::string number = {};  // that decides; empty: the metric of the question
  bool lower_is_better = false;
};

struct Question {
  std::string title;
  std::string text = {};
  std::string paper = {};       // where it is asked there: "Table 2, top-1 on ImageNet"
  std::string metric = "top1";  // in the log of a run
  bool lower_is_better = false;
  std::vector<std::string> also = {};  // further numbers of the log, for the table and for claims
  // Against what the rows are drawn beside their order: parameters, gflops, images_per_second,
  // peak_memory.
  std::vector<std::string> against = {};
};

struct Run {
  size_t row = 0;
  int64_t seed = 0;
  std::string folder = {};  // below that of the sweep: "sasa/seed-1"
  train::Recipe recipe = {};
  // Of the recipe and of what is measured: runs of other sweeps that have the same need not be
  // made.
  std::string fingerprint = {};
};

struct Sweep {
  std::string name;  // of the file, without its ending
  Question question = {};
  std::vector<Row> rows = {};
  std::vector<int64_t> seeds = {};
  std::vector<Measure> measures = {};
  std::vector<Claim> claims = {};
  std::vector<Run> runs = {};  // all rows with the first seed, then with the second ...

  // What the table shows of every row: the metric, what else it shows of the log, then the numbers
  // of the measures.
  std::vector<std::string> numbers() const;
};

struct ReadOptions {
  // The file of a recipe that `base` names; by default the name itself.
  std::function<std::string(const std::string&)> find_recipe = [](const std::string& name) {
    return name;
  };
  std::vector<std::string> settings = {};  // "key=value" for all runs
  std::vector<int64_t> seeds = {};         // in place of the file's; empty: those
};

// A TOML or JSON file; docs/sweep.md has its keys. Throws qna::Error that names file, key, rule and
// value. Weights that recipes name are read for the fingerprints; no data is opened yet.
Sweep read_sweep(const std::string& path, const ReadOptions& options = {});

}  // namespace qna::sweep
