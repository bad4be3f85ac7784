#include "qna/sweep/known.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::sweep {
namespace {

using ::qna::testing::TemporaryFolder;

Sweep asking_for(std::vector<std::string> also) {
  return {.name = "mine", .question = {.title = "Which?", .also = std::move(also)}};
}

TEST(KnownRuns, AreFoundByWhatWasRun) {
  KnownRuns known;
  known.add({.finished = true, .recipe = "a", .numbers = {{"top1", 5}}, .seconds = 60});
  EXPECT_FALSE(known.find(asking_for({"loss"}), {.fingerprint = "a"}));
  known.add({.finished = true, .recipe = "a", .numbers = {{"top1", 5}, {"loss", 2}}});
  const auto found = known.find(asking_for({}), {.fingerprint = "a"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->numbers, (std::map<std::string, double>{{"top1", 5}}));
  EXPECT_EQ(found->seconds, 60);
  EXPECT_TRUE(known.find(asking_for({"loss"}), {.fingerprint = "a"}));
  EXPECT_FALSE(known.find(asking_for({"top5"}), {.fingerprint = "a"}));
  EXPECT_FALSE(known.find(asking_for({}), {.fingerprint = "b"}));
}

TEST(KnownRuns, FromTables) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("queries"));
  std::ofstream(folder.path("queries/runs.csv"))
      << "row,seed,recipe,top1,images_per_second,minutes,peak_memory_mb\n"
         "\"one, two\",1,a,42.5,100.0,1.50,\n";
  KnownRuns known;
  known.read(folder.path(""));
  const auto found = known.find(asking_for({}), {.fingerprint = "a"});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->finished);
  EXPECT_EQ(found->numbers.at("top1"), 42.5);
  EXPECT_EQ(found->seconds, 90);
  EXPECT_TRUE(std::isnan(found->peak_memory_mb));
}

TEST(KnownRuns, Mistakes) {
  const TemporaryFolder folder;
  const auto complaint = [&](const std::string& text) {
    std::ofstream(folder.path("t.csv")) << text;
    return ::qna::testing::complaint([&] { KnownRuns().read(folder.path("t.csv")); });
  };
  EXPECT_NE(complaint("row,seed,top1,x\n").find("must begin with row,seed,recipe"),
            std::string::npos);
  EXPECT_NE(complaint("").find("must begin with"), std::string::npos);
  EXPECT_NE(complaint("row,seed,recipe,top1\nx,1,a,4.2.1\n").find("'4.2.1' is not a number"),
            std::string::npos);
  EXPECT_NE(complaint("row,seed,recipe,top1\nx,1,a,nan\n").find("not a number"), std::string::npos);
  EXPECT_NE(complaint("row,seed,recipe,top1\nx,1\n").find("line 2"), std::string::npos);
}

TEST(KnownRuns, TakeThePlaceOfARun) {
  const TemporaryFolder folder;
  Sweep sweep = asking_for({"classes.cat.AP"});
  const sweep::Run run{.folder = "x/seed-1", .fingerprint = "a"};
  RunResult result{.trained = true, .finished = true, .numbers = {{"top1", 5}}};
  result.numbers["classes.cat.AP"] = 7;
  result.seconds = 30;
  write_taken(folder.path(run.folder), run, result);
  const RunResult read = read_result(sweep, run, folder.path(""));
  EXPECT_TRUE(read.finished);
  EXPECT_EQ(read.numbers, result.numbers);
  EXPECT_EQ(read.seconds, 30);
  EXPECT_TRUE(std::isnan(read.peak_memory_mb));
  EXPECT_FALSE(read_result(asking_for({"top5"}), run, folder.path("")).finished);
  const sweep::Run other{.folder = run.folder, .fingerprint = "b"};
  EXPECT_NE(::qna::testing::complaint([&] {
              read_result(sweep, other, folder.path(""));
            }).find("of another recipe"),
            std::string::npos);
}

}  // namespace
}  // namespace qna::sweep
