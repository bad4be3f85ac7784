// The recipe that is made for what was found and the minutes there are.
#include "qna/finetune/plan.h"

#include <gtest/gtest.h>

#include "qna/base/file.h"
#include "qna/engine/random_weights.h"
#include "qna/recipe/classification_options.h"
#include "qna/recipe/detection_options.h"
#include "qna/recipe/recipe.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::finetune {
namespace {

using qna::testing::expect_complaint;

using train::Speed;

constexpr const char* kWeights = QNA_WEIGHTS_DIR "/classifier.safetensors";

Survey labels(int64_t images, int64_t val = 500) {
  Survey s;
  s.path = "flowers";
  s.layout = "class folders";
  s.classes = {"a", "b"};
  s.data = {{"path", "flowers"}};
  s.train = {.images = images, .per_class = {images / 2, images / 2}};
  s.val = SplitCount{.images = val, .per_class = {val / 2, val / 2}};
  return s;
}

Survey boxes(int64_t images) {
  Survey s = labels(images, 50);
  s.kind = config::Kind::kDetector;
  s.layout = "COCO's JSON";
  s.data = {{"path", "cells"}, {"train", "/t.json"}, {"val", "/v.json"}};
  s.train.most_objects = 25;
  return s;
}

Plan plan_for(const Survey& survey, const Speed& speed, double seconds, const Start& start) {
  return fit_to_time(draft_plan(survey, start), survey, speed, seconds);
}
Plan plan_for(const Survey& survey, const Speed& speed, double seconds) {
  return plan_for(survey, speed, seconds, {.file = kWeights});
}

// The seconds that a recipe takes at this speed.
double seconds_of(const nlohmann::json& recipe, const Survey& survey, const Speed& speed) {
  const double epochs = recipe["epochs"].get<double>();
  double images = static_cast<double>(survey.train_images());
  if (recipe.contains("steps_per_epoch")) {
    images = recipe["steps_per_epoch"].get<double>() * recipe["batch"].get<double>();
  }
  const double evaluations = std::ceil(epochs / recipe["evaluate_every"].get<double>());
  const double of_head = recipe["freeze_epochs"].get<double>();
  return (epochs - of_head) * images / speed.train + of_head * images / speed.evaluate +
         evaluations * static_cast<double>(survey.val_images()) / speed.evaluate;
}

TEST(Plan, FillsTheTimeButNotMore) {
  for (const int64_t images : {2000, 3400, 5000}) {
    for (const double seconds : {280.0, 1100.0, 3000.0}) {
      const Survey survey = labels(images);
      const Speed speed{.train = 100, .evaluate = 400};
      const Plan plan = plan_for(survey, speed, seconds);
      if (plan.recipe["augment"]["size"] != 96) continue;  // smaller pictures, another speed
      const double taken = seconds_of(plan.recipe, survey, speed);
      EXPECT_LE(taken, seconds) << images;
      if (plan.recipe["epochs"] == 60) continue;
      EXPECT_GT(taken, 0.75 * seconds - 60) << images;
    }
  }
}

TEST(Plan, IsARecipeThatTheTrainerTakes) {
  const Plan plan = plan_for(labels(3400), {.train = 100, .evaluate = 400}, 280);
  const train::Recipe recipe = train::recipe_from_json(plan.recipe);
  EXPECT_EQ(recipe.batch, 32);
  EXPECT_EQ(recipe.freeze_epochs, 1);
  EXPECT_EQ(recipe.optimizer.depth_decay, 0.7);
  EXPECT_EQ(recipe.patience, std::max<int64_t>(5, 2 * recipe.epochs / 3));
  const auto options = tasks::classification_options(recipe.sections);
  EXPECT_EQ(options.weights, kWeights);
  const config::QnAViTConfig network = tasks::model_config(options, 2);
  EXPECT_EQ(network.stages.size(), 2u);
  EXPECT_EQ(network.classes, 2);
  EXPECT_EQ(options.preprocess.crop[0], 128);
  EXPECT_EQ(options.augment->size[0], 96);
  EXPECT_FALSE(plan.choices.empty());
  for (const Choice& choice : plan.choices) EXPECT_FALSE(choice.why.empty()) << choice.what;
}

TEST(Plan, RandomWeightsHaveTheSameNetworkButNoHeadFirst) {
  const Plan plan = plan_for(labels(3400), {.train = 100, .evaluate = 400}, 280,
                             {.file = kWeights, .random_weights = true});
  EXPECT_FALSE(plan.recipe["model"].contains("weights"));
  EXPECT_EQ(plan.recipe["model"]["config"]["base_dim"], 160);
  EXPECT_EQ(plan.recipe["freeze_epochs"], 0);
  EXPECT_EQ(plan.recipe["optimizer"]["depth_decay"], 1.0);
}

TEST(Plan, SmallSetsHaveSmallBatchesAndManyEpochs) {
  const Plan plan = plan_for(labels(60, 12), {.train = 100, .evaluate = 400}, 280);
  EXPECT_EQ(plan.recipe["batch"], 4);
  EXPECT_EQ(plan.recipe["epochs"], 60);
  EXPECT_LT(plan.recipe["optimizer"]["lr"].get<double>(), 1e-3);
}

TEST(Plan, SlowMachinesSeeSmallerPictures) {
  const Plan plan = plan_for(labels(6000), {.train = 60, .evaluate = 400}, 280);
  EXPECT_EQ(plan.recipe["preprocess"]["crop"][0], 96);
  EXPECT_EQ(plan.recipe["preprocess"]["resize"], 110);
  EXPECT_EQ(plan.recipe["augment"]["size"], 64);
}

TEST(Plan, FewPicturesAreSeenLarger) {
  Survey survey = labels(240, 150);
  const Speed speed{.train = 140, .evaluate = 400};
  survey.facts.median = 375;
  const Plan plan = plan_for(survey, speed, 280);
  EXPECT_EQ(plan.recipe["preprocess"]["crop"][0], 256);  // twice what the weights know
  EXPECT_EQ(plan.recipe["augment"]["size"], 192);
  EXPECT_GE(plan.recipe["epochs"].get<int64_t>(), 30);
  EXPECT_LE(seconds_of(plan.recipe, survey, {.train = 140.0 / 4, .evaluate = 400.0 / 4}), 280);
  survey.facts.median = 200;  // no larger than they are
  EXPECT_EQ(plan_for(survey, speed, 280).recipe["preprocess"]["crop"][0], 192);
  // No larger than there is time for.
  EXPECT_LT(plan_for(survey, speed, 100).recipe["preprocess"]["crop"][0].get<int64_t>(), 192);
}

// The first epoch reads the pictures; later ones have them, if there is room.
TEST(Plan, ReadingCountsOnceWherePicturesAreKept) {
  Survey survey = labels(3400);
  survey.facts.median = 240;
  const Speed speed{.train = 170, .first = 100, .evaluate = 400};
  const auto epochs = [&](const Plan& plan) { return plan.recipe["epochs"].get<int64_t>(); };
  const Plan kept = plan_for(survey, speed, 280);
  EXPECT_GT(epochs(kept), epochs(plan_for(survey, {.train = 100, .evaluate = 400}, 280)));
  const double reading = 3400.0 / 100 - 3400.0 / 170;
  EXPECT_LE(seconds_of(kept.recipe, survey, speed) + reading, 280);
  Plan draft = draft_plan(survey, {.file = kWeights});
  draft.recipe["data"]["cache_mb"] = 0;
  EXPECT_EQ(epochs(fit_to_time(draft, survey, speed, 280)),
            epochs(plan_for(survey, {.train = 100, .evaluate = 400}, 280)));
  // So it is with those of the evaluations.
  const Speed slow_first{.train = 170, .evaluate = 400, .first_evaluate = 50};
  const Plan often = plan_for(survey, slow_first, 280);
  EXPECT_GT(epochs(often), epochs(plan_for(survey, {.train = 170, .evaluate = 50}, 280)));
  EXPECT_EQ(epochs(fit_to_time(draft, survey, slow_first, 280)),
            epochs(plan_for(survey, {.train = 170, .evaluate = 50}, 280)));
}

// Larger pictures were planned by a guess from the speed of small ones; now theirs is known.
TEST(Plan, ASpeedWithASizeDecidesTheSize) {
  Survey survey = labels(240, 150);
  survey.facts.median = 375;
  const Speed speed{.train = 50, .evaluate = 150};
  const Plan plan = fit_to_time(draft_plan(survey, {.file = kWeights}), survey, speed, 280, 224);
  EXPECT_EQ(plan.recipe["preprocess"]["crop"][0], 224);
  const double taken = seconds_of(plan.recipe, survey, speed);
  EXPECT_LE(taken, 280);
  EXPECT_GT(taken, 0.85 * 280);
}

TEST(Plan, WhatDoesNotFitIsSeenInParts) {
  const Survey survey = labels(1'000'000, 5000);
  const Speed speed{.train = 100, .evaluate = 400};
  const Plan plan = plan_for(survey, speed, 280);
  EXPECT_EQ(plan.recipe["epochs"], 4);
  EXPECT_GT(plan.recipe["steps_per_epoch"].get<int64_t>(), 100);
  EXPECT_LE(seconds_of(plan.recipe, survey, {.train = 178, .evaluate = 711}), 290);  // at 96 pixels
}

TEST(Plan, WhatIsSeenInPartsIsAlwaysNew) {
  const Survey survey = labels(1'000'000, 5000);
  const auto steps = [&](const Speed& speed) {
    return plan_for(survey, speed, 280).recipe["steps_per_epoch"].get<int64_t>();
  };
  EXPECT_EQ(steps({.train = 170, .first = 100, .evaluate = 400}),
            steps({.train = 100, .evaluate = 400}));
}

TEST(Plan, WhatIsAskedForStays) {
  Plan draft = draft_plan(labels(6000), {.file = kWeights});
  draft.recipe["epochs"] = 3;
  draft.keeps_size = true;
  const Plan plan = fit_to_time(draft, labels(6000), {.train = 80, .evaluate = 400}, 60);
  EXPECT_EQ(plan.recipe["epochs"], 3);
  EXPECT_EQ(plan.recipe["freeze_epochs"], 0);
  EXPECT_EQ(plan.recipe["augment"]["size"], 96);
  EXPECT_FALSE(plan.recipe.contains("steps_per_epoch"));
}

TEST(Plan, LongEvaluationsAreFew) {
  const Plan plan = plan_for(labels(2000, 20000), {.train = 100, .evaluate = 400}, 1000);
  EXPECT_GT(plan.recipe["evaluate_every"].get<int64_t>(), 5);
  EXPECT_LE(plan.recipe["evaluate_every"].get<int64_t>(), plan.recipe["epochs"].get<int64_t>());
}

TEST(Plan, ADetectorOnAClassifier) {
  const Plan plan = plan_for(boxes(200), {.train = 15, .evaluate = 60}, 550);
  const train::Recipe recipe = train::recipe_from_json(plan.recipe);
  EXPECT_EQ(recipe.task, "detection");
  EXPECT_EQ(recipe.freeze_epochs, 0);  // the backbone stays as it is anyway
  const auto options = tasks::detection_options(recipe.sections);
  EXPECT_EQ(options.freeze, tasks::Freeze::kBackbone);
  const config::DetrConfig network = tasks::detector_config(options, 2);
  EXPECT_EQ(network.queries, 40);  // 1.5 times the most objects of a picture
  EXPECT_TRUE(network.anchors);
  const auto& backbone = std::get<config::QnAViTConfig>(network.backbone);
  EXPECT_EQ(backbone.stride(backbone.stages.size() - 1), 16);
  // Where a recipe does not say how pictures are normalised, it is as the backbone learned.
  nlohmann::json bare = plan.recipe;
  bare["preprocess"].erase("mean");
  bare["preprocess"].erase("std");
  const auto learned = tasks::detection_options(train::recipe_from_json(bare).sections).preprocess;
  EXPECT_EQ(learned, options.preprocess);
  EXPECT_NE(learned.mean, config::Preprocess{}.mean);
  const Plan random = plan_for(boxes(200), {.train = 15, .evaluate = 60}, 550,
                               {.file = kWeights, .random_weights = true});
  const auto own = tasks::detection_options(train::recipe_from_json(random.recipe).sections);
  EXPECT_EQ(own.backbone, "");
  EXPECT_EQ(tasks::detector_config(own, 2), network);
}

TEST(Plan, ADetectorOnADetector) {
  const qna::testing::TemporaryFolder folder;
  const std::string file = folder.path("detector.safetensors");
  const Plan small = plan_for(boxes(200), {.train = 15, .evaluate = 60}, 550);
  const auto options = tasks::detection_options(train::recipe_from_json(small.recipe).sections);
  write_file(file, engine::random_model_bytes(tasks::detector_config(options, 7),
                                              {.preprocess = options.preprocess}));
  const Plan plan = plan_for(boxes(200), {.train = 15, .evaluate = 60}, 550, {.file = file});
  EXPECT_EQ(plan.recipe["model"]["weights"], file);
  EXPECT_EQ(plan.recipe["model"]["freeze"], "backbone");
  EXPECT_EQ(plan.recipe["freeze_epochs"], 0);
  EXPECT_EQ(plan.recipe["optimizer"]["depth_decay"], 1.0);
  const Plan random = plan_for(boxes(200), {.train = 15, .evaluate = 60}, 550,
                               {.file = file, .random_weights = true});
  EXPECT_FALSE(random.recipe["model"].contains("freeze"));
  expect_complaint([&] { draft_plan(labels(100), {.file = file}); }, {"detector"});
}

TEST(Plan, Mistakes) {
  expect_complaint([] { draft_plan(labels(100), {.file = "nowhere.safetensors"}); },
                   {"nowhere.safetensors"});
}

}  // namespace
}  // namespace qna::finetune
