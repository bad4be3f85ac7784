#include "qna/report/comparison.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::report {
namespace {

using ::qna::testing::TemporaryFolder;

void write_log(const std::string& folder, std::initializer_list<double> metrics) {
  std::filesystem::create_directories(folder);
  std::ofstream log(folder + "/log.jsonl");
  log << R"({"kind":"step","epoch":1,"step":1,"loss":3})"
      << "\n";
  int epoch = 0;
  for (const double metric : metrics) {
    log << R"({"kind":"epoch","epoch":)" << ++epoch << R"(,"train_loss":1,"metrics":{"L1":)"
        << metric << "}}\n";
  }
}

TEST(Comparison, ACurvePerRunAgainstEpochs) {
  const TemporaryFolder folder;
  write_log(folder.path("one"), {0.5, 0.25});
  write_log(folder.path("two"), {0.75});
  const TrainingReport page = compare_runs({folder.path("one"), folder.path("two/")});
  ASSERT_EQ(page.charts.size(), 2u);  // L1 and the loss of training
  const Chart& chart = page.charts[0];
  EXPECT_EQ(chart.title, "L1");
  ASSERT_EQ(chart.curves.size(), 2u);
  EXPECT_EQ(chart.curves[0].name, "one");
  EXPECT_EQ(chart.curves[0].x, (std::vector<double>{1, 2}));
  EXPECT_EQ(chart.curves[0].y, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(chart.curves[1].name, "two");
  EXPECT_EQ(page.notes.size(), 2u);
}

TEST(Comparison, NamesOfRuns) {
  EXPECT_EQ(run_names({"runs/a", "runs/b/"}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(run_names({"x/a", "y/a", "b"}), (std::vector<std::string>{"x/a", "y/a", "b"}));
}

TEST(Comparison, ARunWithoutEpochsIsNamed) {
  const TemporaryFolder folder;
  write_log(folder.path("empty"), {});
  EXPECT_TRUE(testing::contains(testing::complaint([&] { compare_runs({folder.path("empty")}); }),
                                "empty"));
  EXPECT_TRUE(testing::contains(testing::complaint([&] { compare_runs({folder.path("absent")}); }),
                                "absent"));
}

}  // namespace
}  // namespace qna::report
