// When a value made from tensors is made again, and when it is not.
#include "qna/nn/versioned.h"

#include <gtest/gtest.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <thread>

#include "qna/kernels/implementation.h"
#include "qna/nn/block.h"
#include "qna/ops/tensors_test.h"

namespace qna::nn {
namespace {

using torch::Tensor;

// The sum of all sources, and how often it was made.
struct Counted {
  double get(const std::vector<Tensor>& sources, const void* tag = nullptr) {
    return *value.get(sources, tag, [&] {
      ++makes;
      double sum = 0;
      for (const Tensor& source : sources) sum += source.sum().item<double>();
      return sum;
    });
  }
  Versioned<double> value;
  std::atomic<int> makes = 0;
};

TEST(Versioned, KeepsWhatHasNotChanged) {
  Counted sum;
  const std::vector<Tensor> sources = {torch::ones({2, 3}), torch::ones({4})};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sum.get(sources), 10);
  EXPECT_EQ(sum.makes, 1);
  // Reading, and other names for the same tensors, change nothing.
  (sources[0] * 2).sum();
  EXPECT_EQ(sum.get({sources[0], sources[1]}), 10);
  EXPECT_EQ(sum.makes, 1);
}

TEST(Versioned, ChangeInPlace) {
  Counted sum;
  Tensor a = torch::ones({2, 3});
  Tensor b = torch::ones({4});
  EXPECT_EQ(sum.get({a, b}), 10);
  b.add_(1);
  EXPECT_EQ(sum.get({a, b}), 14);
  a.select(0, 1).zero_();  // through a view
  EXPECT_EQ(sum.get({a, b}), 11);
  {
    torch::NoGradGuard no_grad;
    a.copy_(torch::zeros({2, 3}));
  }
  EXPECT_EQ(sum.get({a, b}), 8);
  {
    c10::InferenceMode inference;
    a.add_(1);
  }
  EXPECT_EQ(sum.get({a, b}), 14);
  EXPECT_EQ(sum.makes, 5);
}

TEST(Versioned, OptimizerStep) {
  Counted sum;
  Tensor weight = torch::ones({3}, torch::requires_grad());
  torch::optim::AdamW adam({weight}, torch::optim::AdamWOptions(0.5).weight_decay(0));
  EXPECT_EQ(sum.get({weight}), 3);
  weight.sum().backward();  // gradients alone change nothing
  EXPECT_EQ(sum.get({weight}), 3);
  EXPECT_EQ(sum.makes, 1);
  adam.step();
  EXPECT_NEAR(sum.get({weight}), 1.5, 1e-5);
  EXPECT_EQ(sum.makes, 2);
}

// As torch::optim::SGD does it: around the version counter.
TEST(Versioned, ChangeOfDataNeedsClear) {
  Counted sum;
  const Tensor weight = torch::ones({3});
  EXPECT_EQ(sum.get({weight}), 3);
  weight.data().add_(1);
  sum.value.clear();
  EXPECT_EQ(sum.get({weight}), 6);
}

TEST(Versioned, ReplacedData) {
  Counted sum;
  Tensor weight = torch::ones({3});
  EXPECT_EQ(sum.get({weight}), 3);
  weight.set_data(torch::full({3}, 2.0f));
  EXPECT_EQ(sum.get({weight}), 6);
  EXPECT_EQ(sum.makes, 2);
}

TEST(Versioned, OtherTensorsOrTag) {
  Counted sum;
  const Tensor a = torch::ones({3});
  const Tensor b = torch::ones({3});
  const int tags[2] = {};
  sum.get({a}, &tags[0]);
  sum.get({b}, &tags[0]);
  EXPECT_EQ(sum.makes, 2);
  sum.get({b}, &tags[1]);
  EXPECT_EQ(sum.makes, 3);
  EXPECT_EQ(sum.get({b, a}, &tags[1]), 6);
  EXPECT_EQ(sum.get({a, b}, &tags[1]), 6);  // the order counts
  EXPECT_EQ(sum.makes, 5);
  sum.value.clear();
  sum.get({a, b}, &tags[1]);
  EXPECT_EQ(sum.makes, 6);
}

// A new tensor may lie where a dead one lay: the old one is held, so it cannot.
TEST(Versioned, NewTensorInAnOldPlace) {
  Counted sum;
  for (int i = 0; i < 20; ++i) {
    const Tensor weight = torch::full({8}, static_cast<float>(i));
    EXPECT_EQ(sum.get({weight}), 8 * i);
  }
  EXPECT_EQ(sum.makes, 20);
}

// Tensors made in inference mode have no version, so nothing is ever kept.
TEST(Versioned, InferenceTensors) {
  Counted sum;
  c10::InferenceMode inference;
  Tensor weight = torch::ones({3});
  EXPECT_EQ(sum.get({weight}), 3);
  weight.add_(1);
  EXPECT_EQ(sum.get({weight}), 6);
  EXPECT_EQ(sum.get({torch::ones({1}), weight}), 7);
}

TEST(Versioned, CopiesStartEmpty) {
  Counted sum;
  const Tensor weight = torch::ones({3});
  sum.get({weight});
  int makes = 0;
  const auto make = [&] { return ++makes * 100.0; };
  Versioned<double> copy(sum.value);
  EXPECT_EQ(*copy.get({weight}, nullptr, make), 100);
  copy = sum.value;
  EXPECT_EQ(*copy.get({weight}, nullptr, make), 200);
  EXPECT_EQ(sum.get({weight}), 3);  // and leave the original alone
  EXPECT_EQ(sum.makes, 1);
}

TEST(Versioned, ManyThreadsAskAtOnce) {
  Counted sum;
  Tensor weight = torch::ones({1000});
  for (int round = 1; round <= 20; ++round) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 25; ++i) wrong += sum.get({weight}) != 1000.0 * round;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(sum.makes, round);
    weight.add_(1);
  }
}

// A value that a caller holds stays as it was while others are made.
TEST(Versioned, HeldValuesStay) {
  Versioned<std::vector<int>> value;
  Tensor weight = torch::ones({1});
  const auto held = value.get({weight}, nullptr, [] { return std::vector<int>{1}; });
  weight.add_(1);
  const auto other = value.get({weight}, nullptr, [] { return std::vector<int>{2}; });
  EXPECT_EQ(held->at(0), 1);
  EXPECT_EQ(other->at(0), 2);
}

// ---- a block's packed weights ----

Block small_block() {
  Block block(BlockOptions{.qna = QnAOptions{.in_features = 8, .heads = 2}});
  block->eval();
  return block;
}

// The fused path gives what the differentiable one does after every kind of change.
void expect_packed_anew(Block& block, const Tensor& x, const Tensor& before) {
  torch::NoGradGuard no_grad;
  const Tensor y = block->forward(x);
  EXPECT_TRUE(ops::testing::near(y, block->forward_differentiable(x), 3e-5));
  EXPECT_GT((y - before).abs().max().item<double>(), 1e-3);
}

TEST(PackedBlock, FollowsItsParameters) {
  torch::manual_seed(11);
  Block block = small_block();
  const Tensor x = torch::randn({1, 4, 5, 8});
  const auto fused = [&] {
    torch::NoGradGuard no_grad;
    return block->forward(x);
  };
  Tensor before = fused();
  EXPECT_TRUE(torch::equal(before, fused()));

  torch::optim::SGD sgd(block->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::AdamW adam(block->parameters(), torch::optim::AdamWOptions(0.1));
  for (torch::optim::Optimizer* optimizer :
       std::initializer_list<torch::optim::Optimizer*>{&sgd, &adam, &sgd}) {
    before = fused();
    optimizer->zero_grad();
    block->forward(x).square().sum().backward();
    optimizer->step();
    expect_packed_anew(block, x, before);
  }

  for (const auto& item : block->named_parameters()) {
    SCOPED_TRACE(item.key());
    before = fused();
    torch::NoGradGuard no_grad;
    Tensor parameter = item.value();
    parameter.add_(torch::randn_like(parameter));
    // The queries' part of a softmax over equal tables is small; all others show.
    const Tensor y = fused();
    EXPECT_TRUE(ops::testing::near(y, block->forward_differentiable(x), 3e-5));
    EXPECT_FALSE(torch::equal(y, before));
  }

  before = fused();
  block->mlp->fc1->weight.set_data(torch::randn_like(block->mlp->fc1->weight));
  expect_packed_anew(block, x, before);
}

TEST(PackedBlock, FollowsTheImplementation) {
  torch::manual_seed(12);
  Block block = small_block();
  const Tensor x = torch::randn({1, 4, 5, 8});
  torch::NoGradGuard no_grad;
  const Tensor expected = block->forward_differentiable(x);
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : ops::testing::supported_implementations()) {
      const ops::testing::ForcedImplementation forced(name);
      EXPECT_TRUE(ops::testing::near(block->forward(x), expected, 1e-5)) << name;
      EXPECT_EQ(kernels::last_implementation(), name);
    }
  }
}

TEST(PackedBlock, ClonesDoNotShare) {
  torch::manual_seed(13);
  Block block = small_block();
  const Tensor x = torch::randn({1, 4, 5, 8});
  torch::NoGradGuard no_grad;
  const Tensor before = block->forward(x);
  const auto copy = std::dynamic_pointer_cast<BlockImpl>(block->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(torch::equal(copy->forward(x), before));
  copy->mlp->fc2->weight.add_(1);
  EXPECT_FALSE(torch::equal(copy->forward(x), before));
  EXPECT_TRUE(torch::equal(block->forward(x), before));
}

TEST(PackedBlock, ThreadsShareOne) {
  torch::manual_seed(14);
  Block block = small_block();
  const Tensor x = torch::randn({1, 4, 5, 8});
  Tensor expected;
  {
    torch::NoGradGuard no_grad;
    expected = small_block()->forward(x);  // warms up
    expected = block->forward_differentiable(x);
  }
  std::vector<std::thread> threads;
  std::vector<Tensor> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      torch::NoGradGuard no_grad;
      results[t] = block->forward(x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) {
    EXPECT_TRUE(torch::equal(result, results[0]));
    EXPECT_TRUE(ops::testing::near(result, expected, 1e-5));
  }
}

}  // namespace
}  // namespace qna::nn
