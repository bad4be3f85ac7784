// Against all permutations, with ties, for every small shape.
#include "qna/tasks/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "qna/base/error.h"

namespace qna::tasks {
namespace {

// The least sum over all ways, by trying them.
double least_by_trying(const std::vector<double>& cost, int64_t rows, int64_t columns) {
  const bool wide = rows <= columns;
  const int64_t shorter = std::min(rows, columns);
  std::vector<int64_t> order(std::max(rows, columns));
  std::iota(order.begin(), order.end(), 0);
  double least = std::numeric_limits<double>::infinity();
  do {
    double sum = 0;
    for (int64_t i = 0; i < shorter; ++i) {
      sum += wide ? cost[i * columns + order[i]] : cost[order[i] * columns + i];
    }
    least = std::min(least, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  return shorter == 0 ? 0 : least;
}

// Checks that the pairs are pairs, and returns their sum.
double sum_of(const std::vector<double>& cost, int64_t rows, int64_t columns) {
  const std::vector<int64_t> column_of = assign(cost, rows, columns);
  EXPECT_EQ(static_cast<int64_t>(column_of.size()), rows);
  std::set<int64_t> taken;
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (column_of[row] < 0) continue;
    EXPECT_LT(column_of[row], columns);
    EXPECT_TRUE(taken.insert(column_of[row]).second) << "column " << column_of[row] << " twice";
    sum += cost[row * columns + column_of[row]];
  }
  EXPECT_EQ(static_cast<int64_t>(taken.size()), std::min(rows, columns));
  return sum;
}

TEST(Assignment, EveryShapeAgainstAllPermutations) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> any(-3, 3);
  for (int64_t rows = 0; rows <= 6; ++rows) {
    for (int64_t columns = 0; columns <= 6; ++columns) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<double> cost(rows * columns);
        for (double& value : cost) value = any(random);
        EXPECT_NEAR(sum_of(cost, rows, columns), least_by_trying(cost, rows, columns), 1e-12)
            << rows << " x " << columns;
      }
    }
  }
}

// Few different values: most sums are reached in many ways.
TEST(Assignment, Ties) {
  std::mt19937 random(6);
  for (const int values : {1, 2, 3}) {
    std::uniform_int_distribution<int> any(0, values - 1);
    for (int64_t rows = 1; rows <= 6; ++rows) {
      for (int64_t columns = 1; columns <= 6; ++columns) {
        for (int repeat = 0; repeat < 20; ++repeat) {
          std::vector<double> cost(rows * columns);
          for (double& value : cost) value = any(random);
          EXPECT_EQ(sum_of(cost, rows, columns), least_by_trying(cost, rows, columns));
          EXPECT_EQ(assign(cost, rows, columns), assign(cost, rows, columns));
        }
      }
    }
  }
}

TEST(Assignment, GreedyIsNotEnough) {
  // The cheapest pair (0, 0) would force the dearest.
  EXPECT_EQ(assign(std::vector<double>{1, 2, 2, 100}, 2, 2), (std::vector<int64_t>{1, 0}));
}

TEST(Assignment, RowsWithoutAColumn) {
  EXPECT_EQ(assign(std::vector<double>{5, 1, 3}, 3, 1), (std::vector<int64_t>{-1, 0, -1}));
  EXPECT_EQ(assign(std::vector<double>{5, 1, 3}, 1, 3), (std::vector<int64_t>{1}));
}

// Of DETR's size and beyond. Adding a number to a row or column changes every way alike, so costs
// made of such numbers and zeros on a hidden permutation have a known answer.
TEST(Assignment, LargeWithAKnownAnswer) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> any(0, 1);
  constexpr int64_t n = 300;
  std::vector<int64_t> hidden(n);
  std::iota(hidden.begin(), hidden.end(), 0);
  std::shuffle(hidden.begin(), hidden.end(), random);
  std::vector<double> row_shift(n), column_shift(n), cost(n * n);
  for (double& value : row_shift) value = 1000 * any(random);
  for (double& value : column_shift) value = 1000 * any(random);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      cost[i * n + j] = row_shift[i] + column_shift[j] + (hidden[i] == j ? 0 : 0.01 + any(random));
    }
  }
  EXPECT_EQ(assign(cost, n, n), hidden);
}

TEST(Assignment, WhatIsWrong) {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity()};
  for (const double value : bad) {
    EXPECT_THROW(assign(std::vector<double>{1, 2, value, 3}, 2, 2), Error);
  }
  EXPECT_THROW(assign(std::vector<double>{1, 2, 3}, 2, 2), Error);
}

}  // namespace
}  // namespace qna::tasks
