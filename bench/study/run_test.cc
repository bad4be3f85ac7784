#include "bench/study/run.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/study/rows_testonly.h"
#include "tests/support/complaint.h"

namespace qna::bench::study {
namespace {

TEST(Plan, CoversTheSweeps) {
  std::set<int64_t> kernels, sides, dims;
  for (const Case& c : full_plan()) {
    if (c.side == 256 && c.dim == 64) kernels.insert(c.kernel);
    if (c.kernel == 7 && c.dim == 64) sides.insert(c.side);
    if (c.kernel == 7 && c.side == 64) dims.insert(c.dim);
  }
  EXPECT_EQ(kernels, (std::set<int64_t>{3, 5, 7, 9, 11, 13, 17, 21}));
  EXPECT_EQ(sides, (std::set<int64_t>{32, 64, 128, 256, 512}));
  EXPECT_EQ(dims, (std::set<int64_t>{64, 128, 256, 512}));
  const std::vector<Case> plan = full_plan();
  EXPECT_EQ(std::set<Case>(plan.begin(), plan.end()).size(), plan.size());
}

TEST(Plan, QuickOnesCompileNothing) {
  const std::vector<std::string> names = quick_subjects();
  EXPECT_GT(names.size(), 5u);
  for (const std::string& name : names) EXPECT_FALSE(name.ends_with("-compiled")) << name;
  EXPECT_LT(quick_plan().size(), full_plan().size());
}

TEST(Turns, SlowSubjectsRunLess) {
  EXPECT_EQ(turns_for(0.001, 5).repeats, 20);
  EXPECT_EQ(turns_for(0.001, 5).rounds, 5);
  EXPECT_EQ(turns_for(0.5, 5).repeats, 1);
  EXPECT_EQ(turns_for(1.4, 5).rounds, 2);
  EXPECT_EQ(turns_for(60, 5).rounds, 0);
}

// Every subject of this process, on a map so small that it takes no time. Answers of one family are
// compared in passing.
TEST(Study, LocalSubjectsAgree) {
  StudyOptions options;
  options.cases = {{3, 16, 16}, {5, 16, 16}};
  options.rounds = 1;
  options.peers.threads = 1;
  for (const SubjectKind& kind : all_subjects()) {
    if (kind.make != nullptr) options.subjects.push_back(kind.name);
  }
  size_t saved = 0;
  options.save = [&](const Rows& rows) { saved = rows.size(); };
  const Rows rows = run_study(options);
  ASSERT_EQ(rows.size(), 4 * options.subjects.size());
  EXPECT_EQ(saved, rows.size());
  for (const Row& row : rows) {
    EXPECT_EQ(row.skipped, "") << row.subject;
    EXPECT_GT(row.min_ms, 0) << row.subject;
    EXPECT_GE(row.extra_bytes, 0) << row.subject << " " << row.pass;
    EXPECT_LT(row.difference, 1e-4) << row.subject;
  }
}

TEST(Study, KnownCasesAreKept) {
  StudyOptions options;
  options.cases = {{3, 16, 16}};
  options.passes = {std::string(kForward), std::string(kTrain)};
  options.subjects = {"qna"};
  options.rounds = 1;
  options.peers.threads = 1;
  options.known = {made_row("qna", {3, 16, 16}, 1234, 5)};
  const Rows rows = run_study(options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].min_ms, 1234);
  EXPECT_EQ(rows[1].pass, kTrain);
}

TEST(Study, WhatAFailureLeaves) {
  StudyOptions options;
  options.cases = {{3, 16, 20}};  // 8 heads do not divide 20
  options.subjects = {"qna"};
  EXPECT_NE(testing::complaint([&] { run_study(options); }), "");

  options.cases = {{3, 16, 16}};
  options.passes = {std::string(kForward)};
  options.subjects = {"qna", "py-conv", "jax-qna"};
  options.rounds = 1;
  options.peers.threads = 1;
  options.peers.folder = "/nowhere/at/all";
  const Rows rows = run_study(options);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[0].measured());
  EXPECT_EQ(rows[1].skipped, "no --jax-checkout was given");
  EXPECT_TRUE(rows[2].skipped.starts_with("failed: ")) << rows[2].skipped;
}

TEST(Study, UnknownSubject) {
  StudyOptions options;
  options.subjects = {"nonsense"};
  EXPECT_TRUE(testing::contains(testing::complaint([&] { run_study(options); }),
                                "there is no subject 'nonsense'; there are qna, "));
}

}  // namespace
}  // namespace qna::bench::study
