// Stochastic depth: what is dropped, what is scaled, and when.
#include "qna/nn/drop_path.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

namespace qna::nn {
namespace {

using torch::Tensor;

TEST(DropPath, NothingToDo) {
  const Tensor x = torch::randn({3, 2, 2, 4});
  EXPECT_TRUE(drop_path(x, 0.5, /*training=*/false).is_same(x));
  EXPECT_TRUE(drop_path(x, 0, /*training=*/true).is_same(x));
}

TEST(DropPath, WholeImagesAndTheirScale) {
  torch::manual_seed(1);
  const Tensor x = torch::randn({200, 2, 3, 4});
  const Tensor y = drop_path(x, 0.25, true);
  const float scale = 1 / 0.75f;
  int dropped = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    if (y[i].abs().max().item<float>() == 0) {
      ++dropped;
    } else {
      EXPECT_TRUE(torch::equal(y[i], x[i] * scale)) << i;
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 200);
}

// Of n images a part with standard deviation sqrt(rate (1 - rate) / n) around the rate is dropped:
// 0.5 % for 10,000. Five of those.
TEST(DropPath, Rate) {
  torch::manual_seed(2);
  for (const double rate : {0.05, 0.3, 0.5, 0.9}) {
    const Tensor y = drop_path(torch::ones({10000, 1}), rate, true);
    const double dropped = (y == 0).to(torch::kDouble).mean().item<double>();
    const double sigma = std::sqrt(rate * (1 - rate) / 10000);
    EXPECT_NEAR(dropped, rate, 5 * sigma);
    EXPECT_NEAR(y.mean().item<double>(), 1, 5 * sigma / (1 - rate));  // the expected value stays
  }
}

TEST(DropPath, ImagesAreIndependent) {
  torch::manual_seed(3);
  const Tensor keep = drop_path(torch::ones({10000}), 0.5, true) > 0;
  // Neighbours agree in half of the cases.
  const Tensor agree = keep.slice(0, 1) == keep.slice(0, 0, -1);
  EXPECT_NEAR(agree.to(torch::kDouble).mean().item<double>(), 0.5, 0.025);
}

TEST(DropPath, SeedDecides) {
  const Tensor x = torch::ones({64, 3});
  const auto draw = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return drop_path(x, 0.5, true);
  };
  EXPECT_TRUE(torch::equal(draw(5), draw(5)));
  EXPECT_FALSE(torch::equal(draw(5), draw(6)));
}

TEST(DropPath, Gradient) {
  torch::manual_seed(4);
  const Tensor x = torch::randn({32, 2, 2, 3}, torch::requires_grad());
  const Tensor y = drop_path(x, 0.4, true);
  y.sum().backward();
  const Tensor kept = (y.detach() != 0).to(torch::kFloat);
  EXPECT_TRUE(torch::allclose(x.grad(), kept / 0.6f));
}

TEST(DropPath, OtherTypes) {
  for (const auto type : {torch::kBFloat16, torch::kHalf, torch::kDouble}) {
    torch::manual_seed(5);
    const Tensor y = drop_path(torch::ones({100, 4}, type), 0.5, true);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(((y == 0) | (y == 2)).all().item<bool>());
  }
}

}  // namespace
}  // namespace qna::nn
