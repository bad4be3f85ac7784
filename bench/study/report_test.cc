#include "bench/study/report.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "bench/study/figures.h"
#include "bench/study/rows_testonly.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::bench::study {
namespace {

using testing::contains;

Rows some_rows() {
  Rows rows;
  for (const int64_t k : {3, 5}) {
    rows.push_back(made_row("qna", {k, 256, 64}, 2, 1'000'000));
    rows.push_back(made_row("py-halo", {k, 256, 64}, 25, 30'000'000));
  }
  rows.push_back(made_row("qna", {3, 512, 64}, 8, 2'000'000));
  rows.push_back(skipped_row("py-halo", {3, 512, 64}, "a run would take more than 8 s"));
  return rows;
}

TEST(MarkdownTable, IsAligned) {
  EXPECT_EQ(markdown_table({{"who", "ms"}, {"qna", "1.25"}, {"others", "10"}}),
            "| who    |   ms |\n"
            "|--------|-----:|\n"
            "| qna    | 1.25 |\n"
            "| others |   10 |\n");
}

TEST(Report, TellsNumbersAndWhatIsMissing) {
  const std::string text = report(some_rows());
  EXPECT_TRUE(contains(text, "### Window, forward: milliseconds (map of 256x256x64)"));
  EXPECT_TRUE(contains(text, "25.0 12.5x")) << text;
  EXPECT_TRUE(contains(text, "30.0 30.0x")) << text;
  EXPECT_TRUE(contains(text, "### Map, forward"));
  EXPECT_TRUE(contains(text, "| 512x512 |"));
  EXPECT_FALSE(contains(text, "training ("));
  EXPECT_TRUE(
      contains(text, "- py-halo, forward: a run would take more than 8 s (k = 3 on 512x512x64)"));
  EXPECT_TRUE(contains(text, "12.5x (k = 3) to 12.5x (k = 3) |          yes |")) << text;
  EXPECT_EQ(report({}), "");
}

TEST(Figures, OfWhatWasMeasured) {
  const std::vector<Figure> list = figures(some_rows());
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].name, "study-time-window-forward");
  EXPECT_EQ(list[1].name, "study-memory-window-forward");
  EXPECT_EQ(list[2].name, "study-time-pixels-forward");
  const report::Chart& time = list[0].chart;
  EXPECT_TRUE(time.curves.front().strong);
  EXPECT_EQ(time.curves.front().y, (std::vector<double>{2, 2}));
  ASSERT_EQ(time.x_ticks.size(), 2u);
  EXPECT_EQ(time.x_ticks[1].label, "5");
  EXPECT_EQ(list[2].chart.x_ticks[1].label, "512x512");
  EXPECT_DOUBLE_EQ(list[1].chart.curves.front().y[0], 1);  // MB
  EXPECT_TRUE(figures({}).empty());
}

TEST(Figures, AreWritten) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> paths = write_figures(some_rows(), folder.path("new"));
  ASSERT_EQ(paths.size(), 3u);
  for (const std::string& path : paths) EXPECT_GT(std::filesystem::file_size(path), 1000u) << path;
}

}  // namespace
}  // namespace qna::bench::study
