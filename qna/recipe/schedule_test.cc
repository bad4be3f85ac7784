#include "qna/recipe/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace qna::train {
namespace {

TEST(Schedule, CosineFallsFromOneToMin) {
  const Schedule s{.min_lr = 0.01};
  EXPECT_DOUBLE_EQ(learning_rate_factor(s, 0, 10, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate_factor(s, 20, 10, 4), 0.01 + 0.99 * 0.5);
  EXPECT_NEAR(learning_rate_factor(s, 39, 10, 4),
              0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * 39 / 40)), 1e-15);
  for (int64_t step = 1; step < 40; ++step) {
    EXPECT_LT(learning_rate_factor(s, step, 10, 4), learning_rate_factor(s, step - 1, 10, 4));
  }
}

TEST(Schedule, WarmUpRisesInEqualStepsThenMeetsTheCurve) {
  const Schedule s{.warmup_epochs = 2, .warmup_lr = 0.1};
  const double increment = learning_rate_factor(s, 1, 5, 20) - learning_rate_factor(s, 0, 5, 20);
  EXPECT_GT(learning_rate_factor(s, 0, 5, 20), 0.1);
  for (int64_t step = 1; step < 10; ++step) {
    EXPECT_NEAR(learning_rate_factor(s, step, 5, 20) - learning_rate_factor(s, step - 1, 5, 20),
                increment, 1e-12);
  }
  EXPECT_LT(learning_rate_factor(s, 9, 5, 20), 1);
  // Behind the warm-up it is the cosine without one.
  EXPECT_DOUBLE_EQ(learning_rate_factor(s, 10, 5, 20), learning_rate_factor({}, 10, 5, 20));
}

TEST(Schedule, ConstantAndStep) {
  const Schedule constant{.kind = ScheduleKind::kConstant};
  EXPECT_EQ(learning_rate_factor(constant, 99, 10, 10), 1);
  const Schedule step{.kind = ScheduleKind::kStep, .step_epoch = 2, .step_factor = 0.1};
  EXPECT_EQ(learning_rate_factor(step, 19, 10, 10), 1);
  EXPECT_EQ(learning_rate_factor(step, 20, 10, 10), 0.1);
}

}  // namespace
}  // namespace qna::train
