#include "qna/sweep/sweep.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::sweep {
namespace {

using nlohmann::json;

class ReadSweep : public ::testing::Test {
 protected:
  ReadSweep() {
    put("base.toml",
        "epochs = 7\n[data]\npath = \"pictures\"\n"
        "[model.config]\nstages = [{ queries = 2 }, { queries = 2, window = 4 }]\n");
  }
  void put(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name)) << text;
  }
  Sweep read(const std::string& text, const ReadOptions& options = {}) {
    put("mine.toml", text);
    return read_sweep(folder_.path("mine.toml"), options);
  }
  std::string complaint(const std::string& text) {
    return ::qna::testing::complaint([&] { read(text); });
  }
  void expect_complaint(const std::string& text, const std::string& words) {
    EXPECT_NE(complaint(text).find(words), std::string::npos) << complaint(text);
  }
  static json stages(const sweep::Run& run) {
    return run.recipe.sections["model"]["config"]["stages"];
  }

  const ::qna::testing::TemporaryFolder folder_;
};

TEST_F(ReadSweep, RowsAndSeeds) {
  const Sweep sweep = read(R"(
base = "base.toml"
seeds = [4, 5]
[question]
title = "Queries?"
metric = "top5"
[set]
clip = 1.0
[set.optimizer]
lr = 0.25
[[row]]
name = "QnA, 1 query"
set = { "model.config.stages.*.queries" = 1 }
paper = 80.3
[[row]]
name = "second only"
[row.set.data]
keep_classes = 3
[row.set."model.config.stages.1"]
queries = 9
[[measure]]
name = "moved"
eval = ["--shift", "2"]
numbers = ["shift2_top1"]
[[claim]]
text = "one is better"
better = "QnA, 1 query"
than = "second only"
number = "shift2_top1"
[[claim]]
text = "equal"
same = ["QnA, 1 query", "second only"]
[[claim]]
text = "at least as good"
no_worse = "second only"
than = "QnA, 1 query"
)");
  EXPECT_EQ(sweep.name, "mine");
  EXPECT_EQ(sweep.question.title, "Queries?");
  EXPECT_EQ(sweep.numbers(), (std::vector<std::string>{"top5", "shift2_top1"}));
  ASSERT_EQ(sweep.runs.size(), 4u);
  EXPECT_EQ(sweep.runs[0].folder, "qna-1-query/seed-4");
  EXPECT_EQ(sweep.runs[1].folder, "second-only/seed-4");  // all rows first
  EXPECT_EQ(sweep.runs[2].folder, "qna-1-query/seed-5");
  EXPECT_EQ(sweep.runs[2].recipe.seed, 5);
  EXPECT_EQ(sweep.runs[0].recipe.epochs, 7);
  EXPECT_EQ(sweep.runs[0].recipe.clip, 1);
  EXPECT_EQ(sweep.runs[0].recipe.optimizer.lr, 0.25);
  EXPECT_EQ(stages(sweep.runs[0]), json::parse(R"([{"queries":1},{"queries":1,"window":4}])"));
  EXPECT_EQ(stages(sweep.runs[1]), json::parse(R"([{"queries":2},{"queries":9,"window":4}])"));
  EXPECT_EQ(sweep.runs[1].recipe.sections["data"]["keep_classes"], 3);
  EXPECT_EQ(sweep.rows[0].paper, 80.3);
  EXPECT_TRUE(std::isnan(sweep.rows[1].paper));
  EXPECT_EQ(sweep.claims[0].number, "shift2_top1");
  EXPECT_TRUE(sweep.claims[1].same);
  EXPECT_EQ(sweep.claims[1].number, "top5");
  EXPECT_EQ(sweep.claims[2].better, "second only");
  EXPECT_TRUE(sweep.claims[2].no_worse);
}

TEST_F(ReadSweep, GridsAreAllPairs) {
  const std::string grid =
      "[grid]\n\"model.config.stages.*.queries\" = [1, 2]\n\"data.path\" = [\"a\", \"b\"]\n";
  const Sweep sweep = read("base = \"base.toml\"\n" + grid);
  ASSERT_EQ(sweep.rows.size(), 4u);
  EXPECT_EQ(sweep.rows[0].name, "path a, queries 1");
  EXPECT_EQ(sweep.rows[3].name, "path b, queries 2");
  EXPECT_EQ(sweep.seeds, (std::vector<int64_t>{1, 2, 3}));
  const Sweep both =
      read("base = \"base.toml\"\n[[row]]\nname = \"x\"\n[[row]]\nname = \"y\"\n" + grid);
  ASSERT_EQ(both.rows.size(), 8u);
  EXPECT_EQ(both.rows[7].name, "y, path b, queries 2");
}

TEST_F(ReadSweep, PathsAndSettings) {
  std::filesystem::create_directories(folder_.path("inner/there"));
  put("inner/s.toml",
      "base = \"../base.toml\"\n[[row]]\nname = \"x\"\n[row.set]\ndata.path = \"there\"\n");
  const auto path_of = [](const Sweep& sweep) {
    return sweep.runs[0].recipe.sections["data"]["path"].get<std::string>();
  };
  const std::string file = folder_.path("inner/s.toml");
  EXPECT_EQ(path_of(read_sweep(file)), folder_.path("inner/there"));
  const Sweep set = read_sweep(file, {.settings = {"data.path=/else/where", "epochs=2"}});
  EXPECT_EQ(path_of(set), "/else/where");
  EXPECT_EQ(set.runs[0].recipe.epochs, 2);
  EXPECT_EQ(read_sweep(file, {.seeds = {8}}).runs.at(0).folder, "x/seed-8");
  const Sweep named = read("base = \"known\"\n[[row]]\nname = \"x\"\n",
                           {.find_recipe = [&](const std::string& name) {
                             return name == "known" ? folder_.path("base.toml") : name;
                           }});
  EXPECT_EQ(named.runs[0].recipe.epochs, 7);
}

TEST_F(ReadSweep, Mistakes) {
  const std::string base = "base = \"base.toml\"\n";
  const std::string row = "[[row]]\nname = \"x\"\n";
  expect_complaint(row, "mine.toml: base is missing");
  expect_complaint(base, "there must be rows ([[row]]) or a [grid]");
  expect_complaint(base + "seed = [1]\n" + row, "unknown key 'seed'; did you mean 'seeds'?");
  expect_complaint(base + "seeds = [1, 1]\n" + row, "seeds must be different numbers, got [1,1]");
  expect_complaint(base + "[[row]]\n", "row 1: name is missing");
  expect_complaint(base + row + "sets = 1\n", "did you mean 'set'?");
  expect_complaint(base + row + "[[row]]\nname = \"X!\"\n", "must differ in letters or digits");
  expect_complaint(base + row + "paper = 3.0\n[grid]\nepochs = [1]\n", "beside a grid");
  expect_complaint(base + "[grid]\nepochs = 3\n", "grid.epochs must be a list of values, got 3");
  expect_complaint(base + row + "[row.set]\nepochs = 0\n",
                   "row 'x': recipe: epochs must be from 1");
  expect_complaint(base + row + "[row.set]\n\"model.config.stages.2.queries\" = 0\n",
                   "'model.config.stages' is a list of 2; '2' must be a number below that, or *");
  expect_complaint(base + row + "[row.set]\n\"epochs.x\" = 0\n", "'epochs' is not a table");
  expect_complaint(base + row + "[question]\nagainst = [\"gflop\"]\n", "did you mean 'gflops'?");
  expect_complaint(base + row + "[[measure]]\nname = \"A b\"\n", "measure.name must be small");
  expect_complaint(base + row + "[[measure]]\nname = \"a\"\n", "numbers must name what");
  expect_complaint(base + row + "[[claim]]\ntext = \"t\"\nbetter = \"x\"\nthan = \"z\"\n",
                   "claim.than must be one of x, got 'z'");
  expect_complaint(base + row + "[[claim]]\ntext = \"t\"\nsame = [\"x\"]\n", "must name two rows");
  expect_complaint(
      base + row + "[[claim]]\ntext = \"t\"\nno_worse = \"x\"\nbetter = \"x\"\nthan = \"x\"\n",
      "there must be only one of better, no_worse and same");
}

}  // namespace
}  // namespace qna::sweep
