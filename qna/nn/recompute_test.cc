// Activation checkpointing gives the gradients that are there without it, bit by bit.
#include "qna/nn/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "qna/nn/block.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::nn {
namespace {

using ops::testing::Autocast;
using ops::testing::same;
using torch::Tensor;

Block make_block(bool attention, double drop_path) {
  BlockOptions options{.layer_scale = 0.5, .drop_path = drop_path};
  if (attention) {
    options.attention = WindowSelfAttentionOptions{.features = 8, .heads = 2, .window = {3, 3}};
  } else {
    options.qna = QnAOptions{.in_features = 8, .heads = 2};
  }
  torch::manual_seed(31);
  Block block(options);
  block->train();
  return block;
}

Tensor checkpointed(Block& block, const Tensor& x) {
  return recompute([block](const Tensor& in) mutable { return block->forward(in); }, x,
                   block->parameters());
}

struct Found {
  Tensor y;
  std::vector<Tensor> gradients;  // of x, then of the parameters; undefined where there is none
};

Found run(Block& block, const Tensor& input, bool with_checkpoint, bool x_wants) {
  block->zero_grad(/*set_to_none=*/true);
  const Tensor x = input.clone().requires_grad_(x_wants);
  torch::manual_seed(32);
  Found found;
  found.y = with_checkpoint ? checkpointed(block, x) : block->forward(x);
  if (found.y.requires_grad()) found.y.square().sum().backward();
  found.gradients.push_back(x.grad());
  for (const Tensor& parameter : block->parameters()) found.gradients.push_back(parameter.grad());
  return found;
}

void expect_same(Block& block, const Tensor& x, bool x_wants) {
  const Found plain = run(block, x, false, x_wants);
  const Found again = run(block, x, true, x_wants);
  EXPECT_TRUE(torch::equal(plain.y, again.y));
  EXPECT_EQ(plain.y.requires_grad(), again.y.requires_grad());
  ASSERT_EQ(plain.gradients.size(), again.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_TRUE(same(plain.gradients[i], again.gradients[i])) << "gradient " << i;
  }
}

TEST(Recompute, SameGradients) {
  const Tensor x = torch::randn({6, 5, 4, 8});
  for (const bool attention : {false, true}) {
    for (const double drop_path : {0.0, 0.4}) {
      for (const bool autocast : {false, true}) {
        for (const bool x_wants : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << (attention ? "attention" : "QnA") << ", drop path " << drop_path
                       << (autocast ? ", bfloat16" : "") << (x_wants ? "" : ", frozen x"));
          Block block = make_block(attention, drop_path);
          std::optional<Autocast> lower;
          if (autocast) lower.emplace(torch::kBFloat16);
          expect_same(block, x, x_wants);
          // Some parameters frozen, then all of them.
          block->qna ? block->qna->query.requires_grad_(false)
                     : block->attention->relative_bias.requires_grad_(false);
          block->mlp->fc1->weight.requires_grad_(false);
          expect_same(block, x, x_wants);
          for (Tensor& parameter : block->parameters()) parameter.requires_grad_(false);
          expect_same(block, x, x_wants);
        }
      }
    }
  }
}

// Autocast keeps the lowered weights of a region; those made without a graph must not be found by
// what comes after.
TEST(Recompute, AutocastKeepsNoWeightsWithoutGraph) {
  Block block = make_block(true, 0);
  const Tensor x = torch::randn({2, 5, 4, 8});
  const Autocast lower(torch::kBFloat16);
  const Found first = run(block, x, false, true);
  at::autocast::clear_cache();
  run(block, x, true, true);
  const Found last = run(block, x, false, true);
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same(first.gradients[i], last.gradients[i])) << "gradient " << i;
  }
}

// The backward pass may come when autocast is over.
TEST(Recompute, AutocastOfTheForwardPass) {
  Block block = make_block(false, 0);
  const Tensor x = torch::randn({2, 5, 4, 8});
  const auto gradients = [&](bool with_checkpoint) {
    block->zero_grad(/*set_to_none=*/true);
    Tensor y;
    {
      const Autocast lower(torch::kBFloat16);
      y = with_checkpoint ? checkpointed(block, x) : block->forward(x);
    }
    y.to(torch::kFloat).square().sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    std::vector<Tensor> found;
    for (const Tensor& parameter : block->parameters()) found.push_back(parameter.grad());
    return found;
  };
  const auto plain = gradients(false);
  const auto again = gradients(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same(plain[i], again[i])) << i;
}

// Several pieces in a row, as in a network, with random numbers drawn between them.
TEST(Recompute, Chain) {
  std::vector<Block> blocks = {make_block(false, 0.3), make_block(true, 0.3),
                               make_block(false, 0.3)};
  const Tensor input = torch::randn({6, 5, 4, 8});
  const auto gradients = [&](bool with_checkpoint) {
    torch::manual_seed(33);
    Tensor x = input.clone().requires_grad_();
    Tensor y = x;
    std::vector<Tensor> found;
    for (Block& block : blocks) {
      block->zero_grad(/*set_to_none=*/true);
      y = with_checkpoint ? checkpointed(block, y) : block->forward(y);
      y = torch::dropout(y, 0.1, true);
    }
    y.square().sum().backward();
    found.push_back(x.grad());
    for (Block& block : blocks) {
      for (const Tensor& parameter : block->parameters()) found.push_back(parameter.grad());
    }
    found.push_back(torch::rand({4}));  // the random numbers after it are the same too
    return found;
  };
  const auto plain = gradients(false);
  const auto again = gradients(true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same(plain[i], again[i])) << i;
}

TEST(Recompute, ComputesAgainInTheBackwardPassOnly) {
  const Tensor weight = torch::randn({3}, torch::requires_grad());
  const Tensor unused = torch::randn({3}, torch::requires_grad());
  int runs = 0;
  const auto piece = [&](const Tensor& x) {
    ++runs;
    return x * weight;
  };
  const Tensor x = torch::randn({2, 3}, torch::requires_grad());
  const Tensor y = recompute(piece, x, {weight, unused});
  EXPECT_EQ(runs, 1);
  y.sum().backward();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(torch::equal(weight.grad(), x.detach().sum(0)));
  EXPECT_FALSE(unused.grad().defined());
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(recompute(piece, x, {weight, unused}).requires_grad());
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace qna::nn
