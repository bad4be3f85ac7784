#include "qna/train/adamw.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/train/ema.h"

namespace qna::train {
namespace {

// The paper's algorithm 2, on plain numbers in double.
struct Reference {
  double m = 0, v = 0;
  int64_t t = 0;
  void step(double& x, double g, double lr, const Optimizer& o, double decay) {
    ++t;
    m = o.betas[0] * m + (1 - o.betas[0]) * g;
    v = o.betas[1] * v + (1 - o.betas[1]) * g * g;
    const double mean = m / (1 - std::pow(o.betas[0], t));
    const double variance = v / (1 - std::pow(o.betas[1], t));
    x -= lr * decay * x;
    x -= lr * mean / (std::sqrt(variance) + o.epsilon);
  }
};

TEST(AdamW, EqualsThePaper) {
  torch::manual_seed(1);
  torch::nn::Linear model(5, 3);
  const Optimizer options{.lr = 0.01,
                          .weight_decay = 0.3,
                          .betas = {0.8, 0.95},
                          .groups = {{.match = "bias", .lr_scale = 0.5, .weight_decay = 0}}};
  AdamW optimizer(*model, options);
  std::vector<double> weight, bias;
  for (int i = 0; i < 15; ++i) weight.push_back(model->weight.flatten()[i].item<double>());
  for (int i = 0; i < 3; ++i) bias.push_back(model->bias[i].item<double>());
  std::vector<Reference> references(18);
  for (int step = 0; step < 7; ++step) {
    model->weight.mutable_grad() = torch::randn({3, 5});
    model->bias.mutable_grad() = torch::randn({3});
    for (int i = 0; i < 15; ++i) {
      references[i].step(weight[i], model->weight.grad().flatten()[i].item<double>(), 0.01, options,
                         0.3);
    }
    for (int i = 0; i < 3; ++i) {
      references[15 + i].step(bias[i], model->bias.grad()[i].item<double>(), 0.005, options, 0);
    }
    optimizer.step(0.01);
  }
  for (int i = 0; i < 15; ++i) {
    EXPECT_NEAR(model->weight.flatten()[i].item<double>(), weight[i], 1e-6);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(model->bias[i].item<double>(), bias[i], 1e-6);
}

TEST(AdamW, PatternWithoutParameterStops) {
  torch::nn::Linear model(2, 2);
  Optimizer options;
  options.groups = {{.match = "*bias"}, {.match = "rpe_bias"}};
  try {
    AdamW optimizer(*model, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'rpe_bias'"), std::string::npos) << error.what();
  }
}

TEST(AdamW, StateGoesOnWhereItWas) {
  torch::manual_seed(2);
  torch::nn::Linear a(4, 4), b(4, 4);
  {
    torch::NoGradGuard no_grad;
    b->weight.copy_(a->weight);
    b->bias.copy_(a->bias);
  }
  AdamW first(*a, {}), second(*b, {});
  const auto step = [](torch::nn::Linear& model, AdamW& optimizer, int64_t seed) {
    torch::manual_seed(seed);
    for (torch::Tensor& p : model->parameters()) p.mutable_grad() = torch::randn_like(p);
    optimizer.step(0.01);
  };
  for (int i = 0; i < 3; ++i) step(a, first, i);
  {
    torch::NoGradGuard no_grad;
    b->weight.copy_(a->weight);
    b->bias.copy_(a->bias);
  }
  std::map<std::string, torch::Tensor> saved;
  for (const auto& [name, tensor] : first.state()) saved[name] = tensor.clone();
  second.load_state(saved);
  for (int i = 3; i < 6; ++i) {
    step(a, first, i);
    step(b, second, i);
  }
  EXPECT_TRUE(torch::equal(a->weight, b->weight));
  saved.erase("optimizer/step/bias");
  EXPECT_THROW(second.load_state(saved), Error);
}

TEST(AdamW, GradientNorm) {
  torch::nn::Linear model(2, 1);
  AdamW optimizer(*model, {});
  model->weight.mutable_grad() = torch::tensor({{3.0f, 0.0f}});
  model->bias.mutable_grad() = torch::tensor({4.0f});
  EXPECT_DOUBLE_EQ(optimizer.gradient_norm(), 5);
  model->bias.mutable_grad() = torch::tensor({INFINITY});
  EXPECT_FALSE(std::isfinite(optimizer.gradient_norm()));
  model->bias.mutable_grad() = torch::tensor({NAN});
  EXPECT_FALSE(std::isfinite(optimizer.gradient_norm()));
}

TEST(AdamW, ClipsByAFactor) {
  torch::nn::Linear a(3, 2), b(3, 2);
  {
    torch::NoGradGuard no_grad;
    b->weight.copy_(a->weight);
  }
  AdamW first(*a, {}), second(*b, {});
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor gradient = torch::randn({2, 3});
    a->weight.mutable_grad() = gradient;
    b->weight.mutable_grad() = gradient * 0.25;
    first.step(0.01, 0.25);
    second.step(0.01);
  }
  EXPECT_TRUE(torch::equal(a->weight, b->weight));
  EXPECT_TRUE(a->weight.grad().defined());
}

TEST(AdamW, GradientsMayLieInAnyOrder) {
  torch::nn::Linear a(3, 2), b(3, 2);
  {
    torch::NoGradGuard no_grad;
    b->weight.copy_(a->weight);
  }
  AdamW first(*a, {}), second(*b, {});
  const torch::Tensor gradient = torch::randn({3, 2}).t();
  a->weight.mutable_grad() = gradient;
  b->weight.mutable_grad() = gradient.contiguous();
  EXPECT_DOUBLE_EQ(first.gradient_norm(), second.gradient_norm());
  first.step(0.01);
  second.step(0.01);
  EXPECT_TRUE(torch::equal(a->weight, b->weight));
}

// With and without a gradient.
TEST(Ema, IsTheRunningMean) {
  torch::nn::Linear model(1, 1);
  Ema ema(*model, 0.75);
  AdamW optimizer(*model, {}, &ema);
  const auto step = [&](float weight) {  // lr 0: as if a step had led there
    torch::NoGradGuard no_grad;
    model->weight.fill_(weight);
    optimizer.step(0);
  };
  {
    torch::NoGradGuard no_grad;
    model->weight.fill_(1);
    ema.mean_of(model->weight).fill_(1);
  }
  step(3);  // 0.75 * 1 + 0.25 * 3
  model->weight.mutable_grad() = torch::tensor({{7.0f}});
  step(5);  // 0.75 * 1.5 + 0.25 * 5
  ema.swap();
  EXPECT_FLOAT_EQ(model->weight.item<float>(), 2.375f);
  ema.swap();
  EXPECT_FLOAT_EQ(model->weight.item<float>(), 5);
}

TEST(Ema, WarmsUp) {
  torch::nn::Linear model(1, 1);
  const Ema warm(*model, 0.9, /*warm_up=*/true), cold(*model, 0.9);
  EXPECT_DOUBLE_EQ(warm.decay_at(0), 0.1);
  EXPECT_DOUBLE_EQ(warm.decay_at(8), 0.5);
  EXPECT_DOUBLE_EQ(warm.decay_at(1000), 0.9);
  EXPECT_DOUBLE_EQ(cold.decay_at(0), 0.9);

  // The mean of a weight that goes straight on: it follows closely where the other lags.
  Ema ema(*model, 0.99, /*warm_up=*/true);
  AdamW optimizer(*model, {.weight_decay = 0}, &ema);
  double mean = model->weight.item<double>();
  for (int64_t step = 0; step < 20; ++step) {
    model->weight.mutable_grad() = torch::ones({1, 1});
    model->bias.mutable_grad() = torch::ones({1});
    optimizer.step(0.5);
    const double decay = (1.0 + step) / (10.0 + step);
    mean = decay * mean + (1 - decay) * model->weight.item<double>();
    EXPECT_NEAR(ema.mean_of(model->weight).item<double>(), mean, 1e-5);
  }
}

TEST(Ema, OffDoesNothing) {
  torch::nn::Linear model(1, 1);
  Ema ema(*model, 0);
  const torch::Tensor before = model->weight.detach().clone();
  EXPECT_FALSE(ema.mean_of(model->weight).defined());
  ema.swap();
  EXPECT_TRUE(torch::equal(before, model->weight));
  EXPECT_TRUE(ema.tensors().empty());
}

}  // namespace
}  // namespace qna::train
