#include "qna/recipe/recipe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qna/base/error.h"
#include "qna/format/toml.h"
#include "tests/support/temporary_folder.h"

namespace qna::train {
namespace {

using nlohmann::json;

std::string complaint(const json& object) {
  try {
    recipe_from_json(object);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recipe, RoundTrip) {
  const json written = {
      {"epochs", 7},
      {"batch", 32},
      {"precision", "bfloat16"},
      {"optimizer", {{"lr", 0.1}, {"group", {{{"match", "*.bias"}, {"weight_decay", 0}}}}}},
      {"schedule", {{"kind", "step"}, {"step_epoch", 3}}},
      {"data", {{"path", "x"}}}};
  const Recipe recipe = recipe_from_json(written);
  EXPECT_EQ(recipe.epochs, 7);
  EXPECT_EQ(recipe.precision, Precision::kBFloat16);
  ASSERT_EQ(recipe.optimizer.groups.size(), 1u);
  EXPECT_EQ(recipe.optimizer.groups[0].weight_decay, 0);
  EXPECT_EQ(recipe.sections, json({{"data", {{"path", "x"}}}}));
  EXPECT_EQ(to_json(recipe_from_json(to_json(recipe))), to_json(recipe));
  // Through TOML too, as a run's folder keeps it.
  EXPECT_EQ(format::parse_toml(format::to_toml(to_json(recipe)), "test"), to_json(recipe));
}

TEST(Recipe, LearningRateScalesWithTheBatch) {
  const Recipe recipe = recipe_from_json({{"batch", 1024}, {"optimizer", {{"lr", 5e-4}}}});
  EXPECT_DOUBLE_EQ(recipe.full_lr(), 2e-3);
  EXPECT_DOUBLE_EQ(recipe_from_json({{"optimizer", {{"lr", 5e-4}, {"lr_batch", 0}}}}).full_lr(),
                   5e-4);
}

TEST(Recipe, ErrorsNameTheKey) {
  EXPECT_EQ(
      complaint({{"epoch", 3}}),
      "recipe: unknown key 'epoch'; did you mean 'epochs'? The keys here are about, accumulate, "
      "augment, batch, checkpoint_minutes, checkpoint_steps, clip, data, ema, ema_warmup, "
      "epochs, evaluate_every, freeze_epochs, loss, max_bad_steps, mix, model, optimizer, "
      "patience, precision, preprocess, schedule, seed, steps_per_epoch, task, teacher");
  EXPECT_EQ(complaint({{"model", 3}}), "recipe: model must be a table, got 3");
  EXPECT_NE(complaint({{"optimizer", {{"learning_rate", 3}}}})
                .find("unknown key 'optimizer.learning_rate'"),
            std::string::npos);
  EXPECT_NE(complaint({{"optimizer", {{"group", {{{"pattern", "x"}}}}}}})
                .find("optimizer.group[0].pattern"),
            std::string::npos);
  EXPECT_EQ(complaint({{"epochs", 0}}), "recipe: epochs must be from 1 to 1000000000, got 0");
  EXPECT_EQ(complaint({{"epochs", "many"}}), "recipe: epochs must be an integer, got \"many\"");
  EXPECT_EQ(complaint({{"ema", 1}}), "recipe: ema must be from 0 to below 1, got 1");
  EXPECT_EQ(complaint({{"precision", "half"}}),
            "recipe: precision must be one of float32, bfloat16, got \"half\"");
  EXPECT_EQ(complaint({{"batch", 8}, {"accumulate", 9}}),
            "recipe: accumulate must be from 1 to 8, got 9");
  EXPECT_EQ(complaint({{"epochs", 3}, {"freeze_epochs", 4}}),
            "recipe: freeze_epochs must be from 0 to 3, got 4");
  EXPECT_EQ(complaint({{"optimizer", {{"depth_decay", 0}}}}),
            "recipe: optimizer.depth_decay must be above 0 and at most 1, got 0");
  EXPECT_EQ(complaint({{"schedule", 3}}), "recipe: schedule must be a table, got 3");
}

TEST(Recipe, Settings) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "qna_recipe_test.toml").string();
  std::ofstream(path) << "epochs = 3\n[data]\npath = \"a\"\n";
  const Recipe recipe = read_recipe(
      path, {"epochs=5", "data.path=/some where/b", "augment.rand_augment.ops=1", "seed=2"});
  EXPECT_EQ(recipe.epochs, 5);
  EXPECT_EQ(recipe.seed, 2);
  EXPECT_EQ(recipe.sections["data"]["path"], "/some where/b");
  EXPECT_EQ(recipe.sections["augment"]["rand_augment"]["ops"], 1);
  EXPECT_THROW(read_recipe(path, {"epochs"}), Error);
  EXPECT_THROW(read_recipe(path, {"epochs.x=1"}), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(read_recipe(path), Error);
}

TEST(Recipe, PathsAreThoseOfFilesBesideIt) {
  namespace fs = std::filesystem;
  const qna::testing::TemporaryFolder folder;
  fs::create_directories(folder.path("recipes/pictures"));
  std::ofstream(folder.path("start.safetensors")) << "x";
  std::ofstream(folder.path("recipes/base.toml")) << "[data]\npath = \"pictures\"\n";
  std::ofstream(folder.path("recipes/a.toml"))
      << "extends = \"base.toml\"\n[model]\nweights = \"../start.safetensors\"\n"
         "backbone = \"not_there.safetensors\"\n";
  const Recipe recipe = read_recipe(folder.path("recipes/a.toml"));
  EXPECT_EQ(recipe.sections["data"]["path"], folder.path("recipes/pictures"));
  EXPECT_EQ(recipe.sections["model"]["weights"], folder.path("start.safetensors"));
  EXPECT_EQ(recipe.sections["model"]["backbone"], "not_there.safetensors");
  // What is set belongs to the place where it is typed.
  EXPECT_EQ(
      read_recipe(folder.path("recipes/a.toml"), {"data.path=pictures"}).sections["data"]["path"],
      "pictures");
  const Recipe everywhere = with_absolute_paths(recipe);
  EXPECT_EQ(everywhere.sections["model"]["backbone"],
            (fs::current_path() / "not_there.safetensors").string());
}

TEST(Recipe, DifferencesThatDecideTheWeights) {
  const Recipe a = recipe_from_json({{"epochs", 3}, {"data", {{"path", "a"}, {"workers", 1}}}});
  Recipe b = recipe_from_json({{"epochs", 3}, {"data", {{"path", "b"}, {"workers", 2}}}});
  b.checkpoint_minutes = 1;
  b.patience = 2;
  EXPECT_TRUE(differences(a, b).empty());
  b.optimizer.lr *= 2;
  b.sections["model"]["name"] = "x";
  EXPECT_EQ(differences(a, b), (std::vector<std::string>{"model", "optimizer.lr"}));
}

TEST(Recipe, FingerprintsAreOfWhatDecidesTheResult) {
  const qna::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("elsewhere"));
  for (const char* name : {"w.bin", "elsewhere/w.bin"}) {
    std::ofstream(folder.path(name)) << "weights";
  }
  const auto of = [&](const std::string& weights, const std::string& data, int workers) {
    return recipe_from_json({{"epochs", 3},
                             {"data", {{"path", data}, {"workers", workers}}},
                             {"model", {{"weights", folder.path(weights)}}}});
  };
  Recipe recipe = of("w.bin", "/here/pictures", 1);
  const std::string mine = fingerprint(recipe);
  EXPECT_EQ(mine.size(), 16u);
  // The same files in another place, and other words.
  Recipe moved = of("elsewhere/w.bin", "pictures", 2);
  moved.about.what = "words";
  moved.checkpoint_steps = 7;
  EXPECT_EQ(fingerprint(moved), mine);
  EXPECT_EQ(fingerprint(of("w.bin", "pictures/", 1)), mine);
  EXPECT_NE(fingerprint(of("w.bin", "/here/others", 1)), mine);
  EXPECT_NE(fingerprint(of("w.bin", "others/", 1)), mine);
  std::ofstream(folder.path("w.bin")) << "changed";
  EXPECT_NE(fingerprint(recipe), mine);
  recipe = of("elsewhere/w.bin", "pictures", 1);
  recipe.seed = 2;
  EXPECT_NE(fingerprint(recipe), mine);
  recipe.seed = 0;
  recipe.patience = 1;  // when a run ends decides its last number
  EXPECT_NE(fingerprint(recipe), mine);
}

}  // namespace
}  // namespace qna::train
