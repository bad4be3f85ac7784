// Boxes, matching and losses, by hand and at their edges. The numbers of DETR itself
// are compared in tests/golden_detr_test.cc.
#include "qna/tasks/set_loss.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <limits>

#include "qna/ops/tensors_testonly.h"
#include "qna/tasks/boxes.h"

namespace qna::tasks {
namespace {

using ops::testing::expect_complaint;
using ops::testing::near;
using torch::Tensor;

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new ops::testing::OneThread);

Tensor boxes_of(std::initializer_list<std::array<double, 4>> rows) {
  Tensor out = torch::empty({static_cast<int64_t>(rows.size()), 4}, torch::kDouble);
  int64_t i = 0;
  for (const auto& row : rows) {
    for (int64_t j = 0; j < 4; ++j) out[i][j] = row[j];
    ++i;
  }
  return out;
}

// ---- boxes ----

TEST(Boxes, BothForms) {
  const Tensor centres = boxes_of({{0.5, 0.4, 0.2, 0.6}, {0, 0, 0, 0}});
  EXPECT_TRUE(near(corners_of(centres), boxes_of({{0.4, 0.1, 0.6, 0.7}, {0, 0, 0, 0}}), 1e-12));
  EXPECT_TRUE(near(centres_of(corners_of(centres)), centres, 1e-12));
}

TEST(Boxes, IoUByHand) {
  const Tensor a = boxes_of({{0, 0, 2, 2}, {0, 0, 1, 1}, {3, 3, 3, 3}});
  const Tensor b = boxes_of({{1, 1, 3, 3}, {0, 0, 2, 2}, {3, 3, 3, 3}, {2, 0, 3, 1}});
  const Tensor iou = box_iou(a.unsqueeze(1), b);
  const Tensor giou = generalized_iou(a.unsqueeze(1), b);
  ASSERT_EQ(iou.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_NEAR(iou[0][0].item<double>(), 1.0 / 7, 1e-12);
  EXPECT_NEAR(iou[0][1].item<double>(), 1, 1e-12);
  EXPECT_NEAR(iou[1][0].item<double>(), 0, 1e-12);
  EXPECT_NEAR(giou[0][0].item<double>(), 1.0 / 7 - 2.0 / 9, 1e-12);
  EXPECT_NEAR(giou[0][1].item<double>(), 1, 1e-12);
  EXPECT_NEAR(giou[1][0].item<double>(), -4.0 / 9, 1e-12);  // 1 and 4 of 9 are covered
  EXPECT_NEAR(giou[1][3].item<double>(), -1.0 / 3, 1e-12);  // side by side, with one between
  EXPECT_NEAR(iou[2][2].item<double>(), 0, 1e-12);          // empty boxes, not NaN
  EXPECT_NEAR(giou[2][2].item<double>(), 0, 1e-12);
}

TEST(Boxes, EmptyBoxesHaveFiniteGradients) {
  Tensor a = boxes_of({{0.5, 0.5, 0, 0}, {0.1, 0.1, 0, 0.2}}).requires_grad_();
  const Tensor b = boxes_of({{0.5, 0.5, 0, 0}, {0.4, 0.4, 0, 0}});
  generalized_iou(corners_of(a), corners_of(b)).sum().backward();
  EXPECT_TRUE(a.grad().isfinite().all().item<bool>());
}

TEST(Boxes, GradientOfTheGeneralizedIoU) {
  torch::manual_seed(11);
  const Tensor b = corners_of(torch::rand({6, 4}, torch::kDouble));
  Tensor a = torch::rand({6, 4}, torch::kDouble).requires_grad_();
  const auto value = [&](const Tensor& boxes) {
    return generalized_iou(corners_of(boxes), b).sum();
  };
  value(a).backward();
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < 24; ++i) {
    Tensor more = a.detach().clone(), less = a.detach().clone();
    more.view(-1)[i] += kStep;
    less.view(-1)[i] -= kStep;
    EXPECT_NEAR(a.grad().view(-1)[i].item<double>(),
                (value(more) - value(less)).item<double>() / (2 * kStep), 1e-6);
  }
}

// ---- predictions and targets to play with ----

struct Problem {
  Tensor logits, boxes;
  std::vector<BoxTargets> targets;
};

Problem random_problem(std::vector<int64_t> objects, int64_t queries = 6, int64_t classes = 4,
                       int64_t blocks = 2) {
  const auto batch = static_cast<int64_t>(objects.size());
  Problem problem{torch::randn({blocks, batch, queries, classes + 1}),
                  torch::rand({blocks, batch, queries, 4}),
                  {}};
  for (const int64_t n : objects) {
    problem.targets.push_back({torch::randint(classes, {n}, torch::kLong), torch::rand({n, 4})});
  }
  return problem;
}

TEST(SetLoss, PerfectPredictionsAreMatchedAndCostNothing) {
  // Queries 2 and 0 say what objects 0 and 1 are; the others say nothing is there.
  const BoxTargets target{torch::tensor({1, 2}, torch::kLong),
                          boxes_of({{0.2, 0.2, 0.1, 0.1}, {0.7, 0.6, 0.2, 0.3}}).to(torch::kFloat)};
  Tensor logits = torch::full({1, 1, 4, 4}, -30.0), boxes = torch::rand({1, 1, 4, 4});
  logits[0][0][2][1] = logits[0][0][0][2] = logits[0][0][1][3] = logits[0][0][3][3] = 30.0;
  boxes[0][0][2] = target.boxes[0];
  boxes[0][0][0] = target.boxes[1];
  const SetLoss loss = set_loss(logits, boxes, {target});
  EXPECT_TRUE(loss.matches[0].predictions.equal(torch::tensor({0, 2}, torch::kLong)));
  EXPECT_TRUE(loss.matches[0].targets.equal(torch::tensor({1, 0}, torch::kLong)));
  EXPECT_NEAR(loss.total.item<double>(), 0, 1e-5);
  EXPECT_EQ(loss.class_error, 0);
  EXPECT_EQ(loss.terms[0].cardinality_error, 0);
}

TEST(SetLoss, TotalIsTheWeightedSum) {
  torch::manual_seed(12);
  const Problem p = random_problem({2, 3});
  const SetLossOptions options{.class_weight = 2, .box_weight = 3, .giou_weight = 0.5};
  const SetLoss loss = set_loss(p.logits, p.boxes, p.targets, options);
  double total = 0;
  for (const SetLossTerms& terms : loss.terms) {
    total += 2 * terms.classes.item<double>() + 3 * terms.boxes.item<double>() +
             0.5 * terms.giou.item<double>();
  }
  EXPECT_EQ(loss.terms.size(), 2u);
  EXPECT_NEAR(loss.total.item<double>(), total, 1e-4);
}

TEST(SetLoss, ImagesWithoutObjects) {
  torch::manual_seed(13);
  Problem p = random_problem({0, 0});
  p.logits.requires_grad_();
  p.boxes.requires_grad_();
  const SetLoss loss = set_loss(p.logits, p.boxes, p.targets);
  EXPECT_EQ(loss.matches[0].predictions.numel(), 0);
  EXPECT_EQ(loss.terms[0].boxes.item<double>(), 0);
  EXPECT_EQ(loss.class_error, 0);
  loss.total.backward();
  EXPECT_GT(p.logits.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(p.boxes.grad().abs().max().item<double>(), 0);
}

TEST(SetLoss, MoreObjectsThanQueries) {
  torch::manual_seed(14);
  const Problem p = random_problem({9}, 4);
  const SetLoss loss = set_loss(p.logits, p.boxes, p.targets);
  EXPECT_TRUE(loss.matches[0].predictions.equal(torch::arange(4)));
  EXPECT_TRUE(loss.total.isfinite().item<bool>());
}

// What accumulation over parts and processes needs.
TEST(SetLoss, LossesOfPartsAddUpWithTheScaleOfTheWhole) {
  torch::manual_seed(15);
  const Problem p = random_problem({2, 0, 5, 1});
  const SetLossScale whole = set_loss_scale(p.targets, 6);
  EXPECT_EQ(whole.objects, 8);
  EXPECT_NEAR(whole.predictions, 8 + 0.1 * 16, 1e-12);
  double sum = 0;
  for (int64_t begin = 0; begin < 4; begin += 2) {
    sum += set_loss(p.logits.narrow(1, begin, 2), p.boxes.narrow(1, begin, 2),
                    {p.targets.begin() + begin, p.targets.begin() + begin + 2}, {}, whole)
               .total.item<double>();
  }
  EXPECT_NEAR(sum, set_loss(p.logits, p.boxes, p.targets).total.item<double>(), 1e-4);
}

TEST(SetLoss, WhatIsWrong) {
  torch::manual_seed(16);
  Problem p = random_problem({2, 1});
  const auto loss = [&] { set_loss(p.logits, p.boxes, p.targets); };
  p.targets[1].labels.fill_(4);
  expect_complaint(loss, {"labels of image 1", "from 0 to 3", "4 classes", "got 4"});
  p.targets[1].labels.fill_(-1);
  expect_complaint(loss, {"labels of image 1", "got -1"});
  p.targets[1].labels.fill_(0);
  p.targets[1].boxes.fill_(-0.5);
  expect_complaint(loss, {"boxes of image 1", "widths and heights"});
  p.targets[1].boxes = torch::rand({2, 4});
  expect_complaint(loss, {"boxes of image 1", "[1, 4]", "[2, 4]"});
  p.targets.pop_back();
  expect_complaint(loss, {"each of the 2 images", "1"});
  p = random_problem({2, 1});
  p.boxes[0][1].fill_(std::numeric_limits<float>::quiet_NaN());
  expect_complaint(loss, {"image 1", "not finite", "diverged"});
  p.boxes = torch::rand({2, 2, 5, 4});
  expect_complaint(loss, {"[2, 2, 6, 5]", "[2, 2, 5, 4]"});
}

}  // namespace
}  // namespace qna::tasks
