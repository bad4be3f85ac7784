// Dropout: what is zeroed, what is scaled, when, and by which numbers.
#include "qna/nn/dropout.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "tests/support/complaint.h"

namespace qna::nn {
namespace {

using torch::Tensor;

TEST(Dropout, NothingToDo) {
  const Tensor x = torch::randn({3, 5});
  EXPECT_TRUE(nn::dropout(x, 0.5, /*training=*/false).is_same(x));
  EXPECT_TRUE(nn::dropout(x, 0, /*training=*/true).is_same(x));
}

// Of n numbers a part with standard deviation sqrt(rate (1 - rate) / n) around the rate is zeroed.
// Five of those.
TEST(Dropout, RateAndScale) {
  torch::manual_seed(1);
  for (const double rate : {0.05, 0.1, 0.5, 0.9}) {
    const Tensor y = nn::dropout(torch::ones({100003}), rate, true);
    const double sigma = std::sqrt(rate * (1 - rate) / 100003);
    EXPECT_NEAR((y == 0).to(torch::kDouble).mean().item<double>(), rate, 5 * sigma);
    EXPECT_NEAR(y.mean().item<double>(), 1, 5 * sigma / (1 - rate));
    EXPECT_NEAR(y.max().item<double>(), 1 / (1 - rate), 1e-3);
  }
}

// The numbers of one draw, of neighbouring draws, of one place in two calls.
TEST(Dropout, NumbersAreIndependent) {
  torch::manual_seed(2);
  const auto draw = [] { return nn::dropout(torch::ones({100000}), 0.5, true) > 0; };
  const Tensor keep = draw();
  for (const int64_t lag : {1, 2, 3, 4, 8, 4096}) {
    const Tensor agree = keep.slice(0, lag) == keep.slice(0, 0, -lag);
    EXPECT_NEAR(agree.to(torch::kDouble).mean().item<double>(), 0.5, 0.01) << lag;
  }
  EXPECT_NEAR((draw() == keep).to(torch::kDouble).mean().item<double>(), 0.5, 0.01);
}

TEST(Dropout, SeedDecidesAndThreadsDoNot) {
  const Tensor x = torch::ones({70001});
  const auto draw = [&](uint64_t seed, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    torch::manual_seed(seed);
    const Tensor y = nn::dropout(x, 0.3, true);
    at::set_num_threads(before);
    return y;
  };
  EXPECT_TRUE(torch::equal(draw(5, 1), draw(5, 2)));
  EXPECT_FALSE(torch::equal(draw(5, 1), draw(6, 1)));
}

TEST(Dropout, Gradient) {
  torch::manual_seed(4);
  const Tensor x = torch::randn({32, 7}, torch::requires_grad());
  const Tensor y = nn::dropout(x, 0.5, true);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), (y.detach() != 0).to(torch::kFloat) * 2));
}

TEST(Dropout, OtherTypesAndSizes) {
  for (const auto type : {torch::kBFloat16, torch::kHalf, torch::kDouble}) {
    const Tensor y = nn::dropout(torch::ones({100, 3}, type), 0.5, true);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(((y == 0) | (y == 2)).all().item<bool>());
  }
  for (int64_t n = 0; n < 10; ++n) EXPECT_EQ(nn::dropout(torch::ones({n}), 0.5, true).numel(), n);
}

TEST(Dropout, BadRate) {
  for (const double rate : {-0.1, 1.0, 1.5}) {
    EXPECT_TRUE(qna::testing::contains(
        qna::testing::complaint([&] { nn::dropout(torch::ones({2}), rate, true); }), "rate"));
  }
}

}  // namespace
}  // namespace qna::nn
