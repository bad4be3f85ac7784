#include "bench/study/fit.h"

#include <gtest/gtest.h>

#include "bench/study/rows_testonly.h"

namespace qna::bench::study {
namespace {

TEST(Exponent, OfPowers) {
  const double x[] = {1, 2, 4, 8};
  const double square[] = {3, 12, 48, 192};
  const double constant[] = {5, 5, 5, 5};
  EXPECT_NEAR(exponent(x, square), 2, 1e-12);
  EXPECT_NEAR(exponent(x, constant), 0, 1e-12);
  const double noisy[] = {3 * 1.1, 12 / 1.1, 48 / 1.1, 192 * 1.1};  // errors that cancel
  EXPECT_NEAR(exponent(x, noisy), 2, 1e-12);
}

TEST(Exponent, NeedsTwoPoints) {
  const double x[] = {2, 2, 0}, y[] = {1, 3, 5};
  EXPECT_TRUE(std::isnan(exponent(x, y)));
  EXPECT_TRUE(std::isnan(exponent({}, {})));
  const double three[] = {2, 4, 8}, zero[] = {1, 0, 4};  // what is not positive does not count
  EXPECT_NEAR(exponent(three, zero), 1, 1e-12);
}

TEST(Sweeps, AreFoundInTheCases) {
  const Rows rows = {
      made_row("qna", {7, 256, 64}, 7, 1),       made_row("qna", {3, 256, 64}, 3, 1),
      made_row("qna", {5, 256, 64}, 5, 1),       made_row("qna", {7, 512, 64}, 28, 1),
      made_row("qna", {7, 64, 64}, 1, 1),        made_row("qna", {7, 64, 128}, 2, 1),
      made_row("qna", {7, 64, 64}, 9, 1, kTrain)};
  const Rows kernels = sweep_rows(rows, Sweep::kKernel, kForward);
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0].shape.kernel, 3);
  EXPECT_EQ(kernels[2].shape.kernel, 7);
  EXPECT_EQ(sweep_rows(rows, Sweep::kPixels, kForward).size(), 3u);
  EXPECT_EQ(sweep_rows(rows, Sweep::kDim, kForward).size(), 2u);
  EXPECT_TRUE(sweep_rows(rows, Sweep::kDim, kTrain).empty());
}

TEST(Growth, OfOneSubject) {
  Rows rows;
  for (const int64_t side : {32, 64, 128}) {
    rows.push_back(made_row("qna", {7, side, 64}, static_cast<double>(side * side), 1));
    rows.push_back(made_row("halo", {7, side, 64}, 1, 1));
  }
  rows.push_back(skipped_row("qna", {7, 256, 64}, "no time"));
  const auto time = [](const Row& row) { return row.min_ms; };
  EXPECT_NEAR(growth(rows, Sweep::kPixels, "qna", time), 1, 1e-12);
  EXPECT_TRUE(std::isnan(growth(rows, Sweep::kPixels, "sasa", time)));
}

}  // namespace
}  // namespace qna::bench::study
