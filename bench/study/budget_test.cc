#include "bench/study/budget.h"

#include <gtest/gtest.h>

#include "bench/study/rows_testonly.h"

namespace qna::bench::study {
namespace {

const Budget kBudget{.seconds = 8, .bytes = 1'000'000'000};

std::string asked(const Rows& rows, const Case& shape) {
  return over_budget(rows, "sasa", kForward, shape, kBudget);
}

TEST(OverBudget, TheFirstCaseMayRun) {
  EXPECT_EQ(asked({}, {21, 512, 512}), "");
  // Rows of others, of another pass, and of larger or unlike cases say nothing.
  EXPECT_EQ(
      asked(
          {made_row("halo", {3, 256, 64}, 7900, 1), made_row("sasa", {3, 256, 64}, 7900, 1, kTrain),
           made_row("sasa", {7, 256, 64}, 7900, 1), made_row("sasa", {3, 128, 64}, 7900, 1)},
          {5, 256, 64}),
      "");
}

TEST(OverBudget, OneCaseIsContinuedAsASquare) {
  const Rows rows = {made_row("sasa", {3, 256, 64}, 1000, 1)};
  EXPECT_EQ(asked(rows, {7, 256, 64}), "");                                // 5.4 s
  EXPECT_EQ(asked(rows, {9, 256, 64}), "a run would take more than 8 s");  // 9 s
  EXPECT_EQ(asked({made_row("sasa", {7, 128, 64}, 1, 300'000'000)}, {7, 256, 64}),
            "would need more than 1 GB");
}

TEST(OverBudget, TwoCasesTellThePower) {
  // Does not grow, so that it may run at any size.
  const Rows flat = {made_row("sasa", {3, 256, 64}, 7000, 1),
                     made_row("sasa", {5, 256, 64}, 7000, 1)};
  EXPECT_EQ(asked(flat, {21, 256, 64}), "");
  // Doubles from 4 to 8, and again to 16.
  const Rows linear = {made_row("sasa", {4, 256, 64}, 2500, 1),
                       made_row("sasa", {8, 256, 64}, 5000, 1)};
  EXPECT_EQ(asked(linear, {12, 256, 64}), "");
  EXPECT_EQ(asked(linear, {16, 256, 64}), "a run would take more than 8 s");
}

TEST(OverBudget, WhatCouldNotRunCannotRunLarger) {
  const Rows rows = {made_row("sasa", {3, 256, 64}, 1, 1),
                     skipped_row("sasa", {5, 256, 64}, "failed: no memory")};
  EXPECT_EQ(asked(rows, {7, 256, 64}), "failed: no memory");
  EXPECT_EQ(asked(rows, {3, 512, 64}), "");
}

}  // namespace
}  // namespace qna::bench::study
