#include "qna/sweep/table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "qna/format/toml.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::sweep {
namespace {

using ::qna::testing::complaint;
using ::qna::testing::TemporaryFolder;

Sweep two_rows() {
  Sweep sweep{.name = "mine", .question = {.title = "Which?"}, .seeds = {1, 2, 3}};
  sweep.rows = {{.name = "plain", .paper = 80}, {.name = "new, better", .paper = 81.5}};
  sweep.claims = {{.text = "new wins", .better = "new, better", .than = "plain", .number = "top1"}};
  for (const int64_t seed : sweep.seeds) {
    for (size_t row = 0; row < 2; ++row) {
      sweep.runs.push_back({.row = row, .seed = seed, .folder = fmt::format("{}/{}", row, seed)});
    }
  }
  return sweep;
}

void write_run(const std::string& folder, double top1, bool trained = true) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/recipe.toml") << format::to_toml(to_json(train::Recipe{}));
  std::ofstream(folder + "/log.jsonl")
      << R"({"kind":"step","step":20,"images_per_second":100})"
      << "\n"
      << R"({"kind":"step","step":40,"images_per_second":300})"
      << "\n"
      << R"({"kind":"step","step":60,"images_per_second":200})"
      << "\n"
      << R"({"kind":"epoch","epoch":1,"seconds":60,"metrics":{"top1":1,"loss":2}})"
      << "\n"
      << fmt::format(
             R"({{"kind":"epoch","epoch":2,"seconds":120,"metrics":{{"top1":{},"loss":1.5}}}})",
             top1)
      << "\n";
  // What was run, not what the sweep would run today.
  write_record(folder, {.recipe = "made", .trained = trained, .peak_memory_mb = 50});
}

std::vector<RowPlan> plans() {
  return {{.parameters = 1000, .gflops = 1, .images = 600},
          {.parameters = 2000, .gflops = 2, .images = 600}};
}

TEST(SweepTable, GrowsWithTheRuns) {
  const TemporaryFolder folder;
  const Sweep sweep = two_rows();
  Summary summary = summarize(sweep, plans(), folder.path(""));
  EXPECT_EQ(summary.finished(), 0);
  EXPECT_NE(to_text(summary).find("open: new wins"), std::string::npos) << to_text(summary);
  EXPECT_NE(to_html(summary).find("0 of 6 runs"), std::string::npos);
  for (int seed = 1; seed <= 3; ++seed) {
    write_run(folder.path(fmt::format("0/{}", seed)), 10 + seed);
    write_run(folder.path(fmt::format("1/{}", seed)), 20 + seed, /*trained=*/seed < 3);
  }
  summary = summarize(sweep, plans(), folder.path(""));
  EXPECT_EQ(summary.finished(), 5);
  EXPECT_EQ(summary.rows[1].numbers.at("top1").count, 2);
  write_record(folder.path("1/3"), {.trained = true, .peak_memory_mb = 70});
  summary = summarize(sweep, plans(), folder.path(""));
  EXPECT_EQ(rows_csv(summary),
            "row,runs,top1,top1_deviation,parameters,gflops,paper,difference,images_per_second,"
            "minutes,peak_memory_mb\n"
            "plain,3,12.0000,1.0000,1000,1.0000,80.00,,200.0,2.00,50\n"
            "\"new, better\",3,22.0000,1.0000,2000,2.0000,81.50,+10.00,200.0,2.00,70\n");
  EXPECT_TRUE(runs_csv(summary).starts_with(
      "row,seed,recipe,top1,images_per_second,minutes,peak_memory_mb\n"
      "plain,1,made,11.000000,200.0,2.00,50\n\"new, better\",1,made,21.000000,"))
      << runs_csv(summary);
  EXPECT_EQ(claims_csv(summary),
            "claim,rows,verdict,numbers\n"
            "new wins,\"new, better beside plain\",confirmed,"
            "22.00 \u00b1 1.00 beside 12.00 \u00b1 1.00; above in 3 of 3 seeds\n");
  const std::string text = to_text(summary);
  for (const char* words : {"22.00 \u00b1 1.00", "+10.00", "+1.50", "confirmed: new wins",
                            "new, better beside plain"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(charts(summary).size(), 2u);  // by row, and beside the paper
}

TEST(SweepTable, RefusesRunsOfOthers) {
  const TemporaryFolder folder;
  Sweep sweep = two_rows();
  write_run(folder.path("0/1"), 10);
  sweep.runs[0].recipe.clip = 3;
  const auto read = [&] { read_result(sweep, sweep.runs[0], folder.path("")); };
  EXPECT_NE(complaint(read).find("made with another clip"), std::string::npos);
  sweep.runs[0].recipe.clip = 0;
  sweep.question.metric = "top2";
  EXPECT_NE(complaint(read).find("no number 'top2'; did you mean 'top1'?"), std::string::npos)
      << complaint(read);
}

TEST(SweepTable, ShowsOtherNumbersOfTheLogAndThoseOfClasses) {
  const TemporaryFolder folder;
  Sweep sweep = two_rows();
  const std::string run = folder.path("0/1");
  write_run(run, 10);
  sweep.question.also = {"loss"};
  sweep.measures = {{.name = "classes", .eval = {}, .numbers = {"classes.cat.AP"}}};
  const auto read = [&] { return read_result(sweep, sweep.runs[0], folder.path("")); };
  write_measure(
      run, sweep.measures[0],
      {{"AP", 1}, {"classes", {{{"name", "dog"}, {"AP", 2}}, {{"name", "cat"}, {"AP", 3}}}}});
  EXPECT_EQ(read().numbers.at("classes.cat.AP"), 3);
  EXPECT_EQ(read().numbers.at("loss"), 1.5);
  EXPECT_EQ(sweep.numbers(), (std::vector<std::string>{"top1", "loss", "classes.cat.AP"}));
  sweep.question.also = {"top9"};
  EXPECT_NE(complaint(read).find("no number 'top9'"), std::string::npos);
}

TEST(SweepTable, MeasuresAreMadeAnewWithOtherArguments) {
  const TemporaryFolder folder;
  Sweep sweep = two_rows();
  sweep.measures = {{.name = "moved", .eval = {"--shift", "2"}, .numbers = {"shift2_top1"}}};
  const std::string run = folder.path("0/1");
  write_run(run, 10);
  EXPECT_TRUE(read_result(sweep, sweep.runs[0], folder.path("")).trained);
  EXPECT_FALSE(read_result(sweep, sweep.runs[0], folder.path("")).finished);
  write_measure(run, sweep.measures[0], {{"shift2_top1", 9.5}});
  const RunResult result = read_result(sweep, sweep.runs[0], folder.path(""));
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.numbers.at("shift2_top1"), 9.5);
  sweep.measures[0].eval = {"--shift", "3"};
  EXPECT_FALSE(is_measured(sweep.measures[0], run));
}

TEST(SweepCost, ByRunsThatAreFinishedOrBySpeed) {
  const Sweep sweep = two_rows();
  std::vector<RunResult> runs(6);
  std::vector<RowPlan> rows = plans();
  estimate(rows, row_results(sweep, runs), /*speed=*/10);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 60);
  EXPECT_DOUBLE_EQ(rows[1].seconds, 120);  // twice the GFLOPs
  EXPECT_DOUBLE_EQ(seconds_left(sweep, rows, runs, 2), 3 * 180 / 2.0);
  runs[1] = {.trained = true, .finished = true, .seconds = 300, .images_per_second = 2};
  estimate(rows, row_results(sweep, runs), kNone);
  EXPECT_DOUBLE_EQ(rows[1].seconds, 300);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 150);
  EXPECT_DOUBLE_EQ(seconds_left(sweep, rows, runs, 1), 3 * 150 + 2 * 300);
}

}  // namespace
}  // namespace qna::sweep
