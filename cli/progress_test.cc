#include "cli/progress.h"

#include <gtest/gtest.h>

namespace qna::cli {
namespace {

TEST(Progress, LineTellsHowFarAndHowLong) {
  EXPECT_EQ(progress_line(0, 10, 0, "first"), "[....................] 0/10: first");
  EXPECT_EQ(progress_line(5, 10, 7, "next"), "[##########..........] 5/10, 7 s left: next");
  EXPECT_EQ(progress_line(1, 10, 60, "slow"), "[##..................] 1/10, 9 min left: slow");
  EXPECT_EQ(progress_line(10, 10, 3, "end"), "[####################] 10/10, 0 s left: end");
}

TEST(Progress, NothingToDo) {
  EXPECT_EQ(progress_line(0, 0, 0, "none"), "[....................] 0/0: none");
}

}  // namespace
}  // namespace qna::cli
