// Whole runs inside this process: what the watcher is told, what lies in the folder, and that a run
// that was stopped and resumed comes to the same bits.
#include "qna/train/run_recipe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "qna/base/file.h"
#include "qna/data/teacher_targets_testonly.h"
#include "qna/engine/model.h"
#include "qna/image/write_png.h"
#include "tests/support/complaint.h"
#include "tests/support/temporary_folder.h"

namespace qna::train {
namespace {

using qna::testing::content_of;
using qna::testing::expect_complaint;
namespace fs = std::filesystem;

// Pictures of noise, and an auto-encoder as small as can be.
class RunRecipe : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_.path("pictures"));
    std::mt19937 random(5);
    for (int i = 0; i < 10; ++i) {
      image::Image image = image::make_image(12, 12, 3);
      for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random() >> 24);
      image::write_png(folder_.path("pictures/" + std::to_string(i) + ".png"), image);
    }
  }

  Recipe recipe(const nlohmann::json& change = nlohmann::json::object()) const {
    nlohmann::json object = {
        {"task", "auto-encoding"},
        {"epochs", 3},
        {"batch", 4},
        {"seed", 7},
        {"ema", 0.5},
        {"model", {{"config", {{"widths", {4, 8}}, {"heads", 2}}}}},
        {"data", {{"path", folder_.path("pictures")}, {"val_count", 2}, {"workers", 1}}},
        {"preprocess", {{"resize", 12}, {"crop", {12, 12}}}}};
    object.merge_patch(change);
    return recipe_from_json(object);
  }

  RunResult run(const Recipe& recipe, const std::string& name, bool resume = false,
                const Watcher& watcher = {}) {
    return run_recipe(recipe, {.folder = folder_.path(name), .resume = resume, .threads = 1},
                      Rank{}, watcher, stop_);
  }

  // The weights of a run, without the words beside them.
  std::vector<std::vector<float>> weights(const std::string& name) const {
    const auto file = engine::ModelFile::open(folder_.path(name + "/last.safetensors"));
    std::vector<std::vector<float>> all;
    for (const format::TensorView& tensor : file.tensors().tensors()) {
      if (tensor.dtype == format::DType::kF32)
        all.push_back(engine::read_floats(tensor, file.origin()));
    }
    EXPECT_GT(all.size(), 10u);
    return all;
  }

  qna::testing::TemporaryFolder folder_;
  std::atomic<bool> stop_{false};
};

TEST_F(RunRecipe, TellsAndWritesAll) {
  int64_t starts = 0, steps = 0, epochs = 0, evaluations = 0;
  const Watcher watcher{.start =
                            [&](const RunInfo& info) {
                              ++starts;
                              EXPECT_EQ(info.epochs, 3);
                              EXPECT_EQ(info.steps_per_epoch, 2);  // 8 images, 4 each
                              EXPECT_EQ(info.processes, 1);
                              EXPECT_FALSE(info.about.empty());
                            },
                        .step =
                            [&](const StepInfo& info) {
                              EXPECT_EQ(info.step, ++steps);
                              EXPECT_TRUE(std::isfinite(info.loss));
                            },
                        .evaluation = [&](int64_t, int64_t) { ++evaluations; },
                        .epoch =
                            [&](const EpochInfo& info) {
                              EXPECT_EQ(info.epoch, epochs++);
                              EXPECT_FALSE(info.metrics.empty());
                            }};
  const RunResult result = run(recipe(), "run", false, watcher);
  EXPECT_TRUE(result.finished && result.first);
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(epochs, 3);
  EXPECT_GE(evaluations, 3);
  EXPECT_EQ(result.state.step, 6);
  EXPECT_TRUE(result.state.best.has_value());
  EXPECT_TRUE(fs::exists(result.report));
  for (const char* name : {"recipe.toml", "last.safetensors", "log.jsonl"}) {
    EXPECT_TRUE(fs::exists(folder_.path("run") + "/" + name)) << name;
  }
  EXPECT_EQ(engine::Model::open(result.best_file).kind(), config::Kind::kAutoEncoder);
}

TEST_F(RunRecipe, StoppedAnywhereAndResumedComesToTheSameBits) {
  run(recipe(), "whole");
  for (const int64_t last : {1, 2, 3, 4}) {
    const std::string name = "stopped" + std::to_string(last);
    const Watcher watcher{.step = [&](const StepInfo& info) {
      if (info.step == last) stop_ = true;
    }};
    const RunResult stopped = run(recipe(), name, false, watcher);
    EXPECT_FALSE(stopped.finished);
    EXPECT_GE(stopped.state.step, last);
    EXPECT_LE(stopped.state.step, last + 1);  // the one that may have begun
    EXPECT_TRUE(content_of(stopped.report).find("the run is not finished") != std::string::npos);
    stop_ = false;
    EXPECT_TRUE(run(recipe(), name, /*resume=*/true).finished);
    EXPECT_EQ(weights(name), weights("whole")) << "stopped behind step " << last;
  }
}

TEST_F(RunRecipe, EndsWhenNothingGetsBetter) {
  // With a rate of 0 the first evaluation stays the best one.
  const Recipe patient =
      recipe({{"epochs", 9}, {"patience", 2}, {"ema", 0}, {"optimizer", {{"lr", 0}}}});
  std::vector<std::string> notes;
  const Watcher watcher{.note = [&](const std::string& line) { notes.push_back(line); }};
  const RunResult result = run(patient, "run", false, watcher);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.state.epoch, 3);
  EXPECT_EQ(result.state.best_epoch, 0);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "no better L1 for 2 epochs: the run ends here (patience)");
  const std::string page = content_of(result.report);
  EXPECT_EQ(page.find("not finished"), std::string::npos);
  EXPECT_NE(page.find("ended before its 9 epochs"), std::string::npos);
  // It stays finished, unless somebody has more patience.
  EXPECT_EQ(run(patient, "run", /*resume=*/true).state.epoch, 3);
  Recipe stubborn = patient;
  stubborn.patience = 0;
  EXPECT_EQ(run(stubborn, "run", /*resume=*/true).state.epoch, 9);
}

TEST_F(RunRecipe, PatienceWaitsForAnEvaluation) {
  const RunResult result = run(recipe({{"epochs", 9},
                                       {"patience", 1},
                                       {"evaluate_every", 3},
                                       {"ema", 0},
                                       {"optimizer", {{"lr", 0}}}}),
                               "run");
  EXPECT_EQ(result.state.epoch, 6);
}

TEST_F(RunRecipe, AnEpochOfFewerSteps) {
  const Recipe shorter = recipe({{"steps_per_epoch", 1}, {"epochs", 4}});
  EXPECT_EQ(run(shorter, "whole").state.step, 4);
  const Watcher watcher{.step = [&](const StepInfo& info) { stop_ = info.step == 2; }};
  EXPECT_FALSE(run(shorter, "stopped", false, watcher).finished);
  stop_ = false;
  run(shorter, "stopped", /*resume=*/true);
  EXPECT_EQ(weights("stopped"), weights("whole"));
  EXPECT_EQ(run(recipe({{"steps_per_epoch", 99}}), "all").state.step, 6);
}

// Two classes, and a network with a body and a head.
class FineTuning : public RunRecipe {
 protected:
  void SetUp() override {
    RunRecipe::SetUp();
    for (const char* name : {"a", "b"}) {
      fs::create_directories(folder_.path("classes/" + std::string(name)));
      for (int i = 0; i < 5; ++i) {
        const std::string file = std::to_string(i) + ".png";
        fs::copy(folder_.path("pictures/" + file), folder_.path("classes/") + name + "/" + file);
      }
    }
  }

  Recipe classes(const nlohmann::json& change) const {
    nlohmann::json object = {
        {"epochs", 3},
        {"batch", 4},
        {"seed", 7},
        {"model",
         {{"name", "qna_vit_pico"},
          {"config",
           {{"base_dim", 8},
            {"stages",
             {{{"qna_blocks", 1}, {"qna_heads", 2}}, {{"qna_blocks", 1}, {"qna_heads", 2}}}}}}}},
        {"data", {{"path", folder_.path("classes")}, {"val_fraction", 0.4}, {"workers", 1}}},
        {"preprocess", {{"resize", 16}, {"crop", {16, 16}}}}};
    object.merge_patch(change);
    return recipe_from_json(object);
  }

  // The largest change of the parameters whose name begins so, between two files of weights.
  double change(const std::string& before, const std::string& after, const std::string& prefix) {
    const auto a = engine::ModelFile::open(before), b = engine::ModelFile::open(after);
    double largest = -1;
    for (const format::TensorView& tensor : a.tensors().tensors()) {
      if (!tensor.name.starts_with(prefix)) continue;
      const auto x = engine::read_floats(tensor, "a");
      const auto y = engine::read_floats(b.tensors().at(tensor.name), "b");
      for (size_t i = 0; i < x.size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::abs(x[i] - y[i])));
      }
    }
    EXPECT_GE(largest, 0) << prefix;
    return largest;
  }

  std::string last(const std::string& name) const {
    return folder_.path(name) + "/last.safetensors";
  }
};

TEST_F(FineTuning, TheHeadLearnsFirst) {
  const nlohmann::json still = {{"optimizer", {{"lr", 0}}}};
  run(classes(still), "start");
  run(classes({{"freeze_epochs", 3}}), "head");
  EXPECT_EQ(change(last("start"), last("head"), "stages."), 0);
  EXPECT_EQ(change(last("start"), last("head"), "stem."), 0);
  EXPECT_GT(change(last("start"), last("head"), "head."), 0);
  run(classes({{"freeze_epochs", 2}}), "then_all");
  EXPECT_GT(change(last("start"), last("then_all"), "stages."), 0);
}

TEST_F(FineTuning, AFrozenStemStays) {
  run(classes({{"optimizer", {{"lr", 0}}}}), "start");
  run(classes({{"model", {{"freeze", "stem"}}}}), "frozen");
  EXPECT_EQ(change(last("start"), last("frozen"), "stem."), 0);
  EXPECT_GT(change(last("start"), last("frozen"), "stages."), 0);
  EXPECT_GT(change(last("start"), last("frozen"), "head."), 0);
}

TEST_F(FineTuning, RatesFallWithTheDepth) {
  // The first step of AdamW moves a weight by its rate, whatever the gradient.
  const auto one_step = [](double decay) {
    return nlohmann::json{
        {"epochs", 1},
        {"steps_per_epoch", 1},
        {"optimizer",
         {{"lr", 1e-3}, {"lr_batch", 0}, {"weight_decay", 0}, {"depth_decay", decay}}}};
  };
  run(classes({{"epochs", 1}, {"optimizer", {{"lr", 0}}}}), "start");
  run(classes(one_step(0.5)), "one");
  EXPECT_NEAR(change(last("start"), last("one"), "head."), 1e-3, 2e-5);
  EXPECT_NEAR(change(last("start"), last("one"), "stages.1."), 5e-4, 1e-5);
  EXPECT_NEAR(change(last("start"), last("one"), "stages.0."), 2.5e-4, 5e-6);
  EXPECT_NEAR(change(last("start"), last("one"), "stem."), 1.25e-4, 3e-6);
}

TEST_F(FineTuning, StoppedAnywhereAndResumedComesToTheSameBits) {
  const Recipe tuned = classes(
      {{"freeze_epochs", 1}, {"ema", 0.5}, {"optimizer", {{"depth_decay", 0.6}}}, {"patience", 9}});
  run(tuned, "whole");
  for (const int64_t step : {1, 2, 3, 4}) {
    const std::string name = "stopped" + std::to_string(step);
    const Watcher watcher{.step = [&](const StepInfo& info) {
      if (info.step == step) stop_ = true;
    }};
    EXPECT_FALSE(run(tuned, name, false, watcher).finished);
    stop_ = false;
    EXPECT_TRUE(run(tuned, name, /*resume=*/true).finished);
    EXPECT_EQ(weights(name), weights("whole")) << "stopped behind step " << step;
  }
}

TEST_F(RunRecipe, OtherRunsAreNotTouched) {
  run(recipe(), "run");
  const std::string before = content_of(folder_.path("run/last.safetensors"));
  expect_complaint([&] { run(recipe(), "run"); }, {"run", "resume"});
  expect_complaint([&] { run(recipe({{"batch", 2}}), "run", /*resume=*/true); }, {"batch"});
  EXPECT_EQ(content_of(folder_.path("run/last.safetensors")), before);
}

TEST_F(RunRecipe, AFinishedRunCanBeExtended) {
  run(recipe(), "run");
  std::vector<std::string> notes;
  const Watcher watcher{.note = [&](const std::string& line) { notes.push_back(line); }};
  const RunResult longer = run(recipe({{"epochs", 5}}), "run", /*resume=*/true, watcher);
  EXPECT_TRUE(longer.finished);
  EXPECT_EQ(longer.state.epoch, 5);
  EXPECT_EQ(longer.state.step, 10);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "going on with epoch 4, step 7");
  EXPECT_EQ(
      notes[1],
      "the run had 3 epochs and now has 5: from here on the learning rate is that of a run of "
      "5 epochs");
  expect_complaint(
      [&] {
        run(recipe({{"epochs", 4}}), "run", /*resume=*/true);
      },
      {"epochs may only grow, from 5"});
}

TEST_F(RunRecipe, ARunThatDidNothingDoesNotBlockItsFolder) {
  const Watcher watcher{.step = [&](const StepInfo&) { fail("the first step fails"); }};
  expect_complaint([&] { run(recipe(), "run", false, watcher); }, {"the first step fails"});
  EXPECT_TRUE(fs::exists(folder_.path("run/last.safetensors")));
  EXPECT_TRUE(run(recipe({{"batch", 2}}), "run").finished);
}

TEST_F(RunRecipe, TwoRunsDoNotShareAFolder) {
  const Watcher watcher{.step = [&](const StepInfo& info) {
    if (info.step != 1) return;
    expect_complaint([&] { run(recipe(), "run", true); }, {"another run is at work"});
  }};
  EXPECT_TRUE(run(recipe(), "run", false, watcher).finished);
}

TEST_F(RunRecipe, TheReportIsThereBeforeTheEnd) {
  const Watcher watcher{.step = [&](const StepInfo& info) {
    EXPECT_EQ(fs::exists(folder_.path("run/report.html")), info.epoch > 0);
  }};
  EXPECT_TRUE(run(recipe(), "run", false, watcher).finished);
  const std::string page = content_of(folder_.path("run/report.html"));
  EXPECT_EQ(page.find("not finished"), std::string::npos);
  for (const char* unit : {">dB<", ">pictures/s<", ">of numbers from 0 to 1<", ">epoch<"}) {
    EXPECT_NE(page.find(unit), std::string::npos) << unit;
  }
}

TEST_F(RunRecipe, Mistakes) {
  expect_complaint(
      [&] {
        run(recipe({{"task", "knitting"}}), "none");
      },
      {"task", "classification", "auto-encoding", "knitting"});
  expect_complaint(
      [&] {
        run(recipe({{"data", {{"val_count", 99}}}}), "none");
      },
      {"val_count", "99"});
  expect_complaint([&] { run(recipe({{"data", {{"path", "nowhere"}}}}), "none"); }, {"nowhere"});
  // An auto-encoder is one piece.
  expect_complaint([&] { run(recipe({{"freeze_epochs", 1}}), "none"); }, {"freeze_epochs", "body"});
  EXPECT_FALSE(fs::exists(folder_.path("none/last.safetensors")));
}

// Learning from a teacher's answers: with labels of its classes, or with its classes alone.
class TaughtRun : public RunRecipe {
 protected:
  void SetUp() override {
    const auto write = [&](const std::string& name, uint8_t grey) {
      image::Image image = image::make_image(9, 10, 3);
      std::fill(image.pixels.begin(), image.pixels.end(), grey);
      image::write_png(folder_.path(name), image);
    };
    for (const char* name : {"data/train/a", "data/train/b", "data/val/a", "data/val/b"}) {
      fs::create_directories(folder_.path(name));
    }
    write("data/train/a/one.png", 30);
    write("data/train/b/two.png", 200);
    write("data/train/b/three.png", 100);  // the teacher has not seen it
    write("data/val/a/four.png", 40);
    write("data/val/b/five.png", 220);
    write_file(folder_.path("targets.safetensors"), data::testing::TeacherFile().bytes());
  }

  Recipe taught(const nlohmann::json& change = nlohmann::json::object()) const {
    nlohmann::json object = {
        {"epochs", 3},
        {"batch", 1},
        {"ema", 0.5},
        {"model",
         {{"name", "qna_vit_nano"},
          {"config",
           {{"base_dim", 8},
            {"stages", {{{"qna_blocks", 1}, {"qna_heads", 2}, {"attention_heads", 1}}}}}}}},
        {"data", {{"path", folder_.path("data")}, {"workers", 1}}},
        {"preprocess", {{"resize", 8}, {"crop", {8, 8}}}},
        {"augment", {{"size", {8, 8}}}},
        {"teacher", {{"targets", folder_.path("targets.safetensors")}, {"labels", 0}}}};
    object.merge_patch(change);
    return recipe_from_json(object);
  }
};

TEST_F(TaughtRun, StoppedAndResumedComesToTheSameBits) {
  const Recipe recipe = taught({{"teacher", {{"features", 1}, {"temperature", 2}}}});
  run(recipe, "whole");
  const Watcher watcher{.step = [&](const StepInfo& info) { stop_ = stop_ || info.step == 3; }};
  EXPECT_FALSE(run(recipe, "stopped", false, watcher).finished);
  stop_ = false;
  EXPECT_TRUE(run(recipe, "stopped", /*resume=*/true).finished);
  EXPECT_EQ(weights("stopped"), weights("whole"));
  const auto model = engine::Model::open(folder_.path("whole/last.safetensors"));
  EXPECT_EQ(model.classes(), 3);  // the teacher's, of which validation has two
}

TEST_F(TaughtRun, LearnsWhatTheTeacherSays) {
  // Of the first picture the teacher says class 2, of the second class 0 or 2, so loss falls to the
  // entropy of its answers.
  double first = 0, last = 0;
  const Watcher watcher{.epoch = [&](const EpochInfo& info) {
    if (info.epoch == 0) first = info.train_loss;
    last = info.train_loss;
  }};
  run(taught({{"epochs", 60}, {"ema", 0}, {"optimizer", {{"lr", 0.01}, {"lr_batch", 0}}}}), "run",
      false, watcher);
  EXPECT_LT(last, 0.9 * first);
}

TEST_F(TaughtRun, TellsWhatItLeavesOut) {
  std::string about;
  const Watcher watcher{.start = [&](const RunInfo& info) {
    for (const std::string& line : info.about) about += line + "\n";
  }};
  run(taught(), "run", false, watcher);
  EXPECT_NE(about.find("2 pictures to train, 2 to validate, 3 classes"), std::string::npos);
  EXPECT_NE(about.find("1 pictures without a teacher's answer are left out"), std::string::npos);
}

TEST_F(TaughtRun, Mistakes) {
  const auto expect = [&](const nlohmann::json& change, std::initializer_list<const char*> words) {
    expect_complaint([&] { run(taught(change), "none"); }, words);
  };
  expect({{"teacher", {{"labels", 1}}}}, {"teacher.logits must be 0", "3 classes", "2 of"});
  expect({{"teacher", {{"labels", 0}, {"logits", 0}}}}, {"labels and teacher.logits"});
  expect({{"teacher", {{"temperature", 0}}}}, {"temperature", "0"});
  expect({{"teacher", {{"features", -1}}}}, {"features", "-1"});
  expect({{"teacher", {{"targets", nullptr}}}}, {"targets is missing"});
  expect({{"teacher", {{"targets", "nowhere"}}}}, {"nowhere"});
  expect({{"teacher", {{"tragets", 1}}}}, {"tragets"});
  expect({{"augment", nullptr}}, {"[augment]"});
  data::testing::TeacherFile file;
  file.has_features = false;
  write_file(folder_.path("targets.safetensors"), file.bytes());
  expect({{"teacher", {{"features", 1}}}}, {"hold no features"});
  file.names = "x/one.png\nx/two.png";
  write_file(folder_.path("targets.safetensors"), file.bytes());
  expect(nlohmann::json::object(), {"other pictures", "one.png"});
  EXPECT_FALSE(fs::exists(folder_.path("none/last.safetensors")));
}

TEST_F(RunRecipe, TheTextOfARecipeRunsAgain) {
  run(recipe(), "run");
  run(read_recipe(folder_.path("run/recipe.toml"), {}), "again");
  EXPECT_EQ(weights("again"), weights("run"));
}

}  // namespace
}  // namespace qna::train
