#include "qna/finetune/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/config/detectors.h"
#include "qna/config/registry.h"
#include "qna/recipe/reading_options.h"

namespace qna::finetune {
namespace {

using nlohmann::json;

constexpr int64_t kSizeStep = 32;    // pixels: what the networks divide a side by
constexpr int64_t kSmallSize = 96;   // pixels: below, too little can be seen
constexpr int64_t kFewEpochs = 4;    // fewer are not enough to learn from all images
constexpr int64_t kManyEpochs = 30;  // more teach less than larger images do
constexpr int64_t kMostEpochs = 60;
constexpr int64_t kMostEpochsOfBoxes = 300;  // detectors learn slowly
constexpr int64_t kLeastPatience = 5;        // epochs
constexpr double kEvaluation = 0.2;          // of the time of an epoch, at most
// Of every epoch, for checkpoints and the like, in seconds.
constexpr double kBetweenEpochs = 0.3;

// The name of a listed network, which a recipe begins with; all else of it is written out.
template <typename Entry>
std::string listed_name(std::span<const Entry> list, const std::string& name, const char* other) {
  const bool is_listed = std::ranges::any_of(list, [&](const Entry& e) { return name == e.name; });
  return is_listed ? name : other;
}

std::string name_of(const Start& start) {
  return std::filesystem::path(start.file).filename().string();
}

// A power of two, so that an epoch has about 16 steps or more.
int64_t batch_for(int64_t images, int64_t least, int64_t most) {
  int64_t batch = most;
  while (batch > least && images / batch < 16) batch /= 2;
  return batch;
}

// The square root keeps the noise of a step where it is for another batch.
double rate_for(int64_t batch, double rate_of_32) {
  const double exact = rate_of_32 * std::sqrt(static_cast<double>(batch) / 32);
  return std::round(exact * 1e6) / 1e6;
}

// ---- one label per image ----

// Numbers of a weights file, scaled to this side of the crop.
void set_classifier_size(json& recipe, const config::Preprocess& trained, int64_t size) {
  const double scale = static_cast<double>(size) / static_cast<double>(trained.crop[0]);
  config::Preprocess now = trained;
  now.crop = {size, size};
  now.resize = std::llround(static_cast<double>(trained.resize) * scale);
  recipe["preprocess"] = config::to_json(now);
  // Crops show objects larger than they are: smaller ones train faster, and are seen as large as in
  // validation ("Fixing the train-test resolution discrepancy", 2019).
  recipe["augment"]["size"] = std::max(kSizeStep, (3 * size / 4) / kSizeStep * kSizeStep);
}

Plan draft_classifier(const Survey& survey, const Start& start, const engine::ModelFile& file) {
  Plan plan;
  json& recipe = plan.recipe;
  config::Preprocess trained = file.info().preprocess;
  if (trained.crop[0] == 0) trained.crop = {224, 224};
  json network = config::to_json(file.config_as<config::QnAViTConfig>());
  network.erase("classes");
  network.erase("in_channels");
  const int64_t batch = batch_for(survey.train_images(), 4, 32);
  // With rates that fall with the depth the head can take a higher one; see docs/own-data.md.
  const double rate = rate_for(batch, start.random_weights ? 1e-3 : 2e-3);
  recipe = {{"task", "classification"},
            {"batch", batch},
            {"clip", 1.0},
            {"ema", 0.99},
            {"data", survey.data},
            {"model",
             {{"name", listed_name(config::models(), file.info().name, "qna_vit_tiny")},
              {"config", network}}},
            {"augment", {{"crop_scale", {0.35, 1}}, {"color_jitter", 0.2}}},
            {"loss", {{"label_smoothing", 0.1}}},
            {"optimizer", {{"lr", rate}, {"lr_batch", 0}, {"weight_decay", 0.05}}}};
  set_classifier_size(recipe, trained, trained.crop[0]);
  return plan;
}

// ---- boxes ----

int64_t queries_for(const Survey& survey) {
  const int64_t most =
      std::max(survey.train.most_objects, survey.val.has_value() ? survey.val->most_objects : 0);
  return std::clamp<int64_t>((3 * most / 2 + 9) / 10 * 10, 20, 100);
}

// Left as it is: most of a step would be its backward pass.
constexpr const char* kFrozen = "backbone";

// A small DETR-QnA of boxes behind the first stages of a classifier; docs/detection.md tells why.
json small_detector(const Survey& survey) {
  return {{"hidden", 128},       {"heads", 8},         {"encoder_blocks", 3},
          {"decoder_blocks", 3}, {"feedforward", 512}, {"queries", queries_for(survey)},
          {"dropout", 0},        {"pre_norm", true},   {"anchors", true},
          {"waves", 8},          {"temperature", 20}};
}

json detector_model(const Survey& survey, const Start& start, const engine::ModelFile& file) {
  if (file.kind() == config::Kind::kDetector) {
    json network = config::to_json(file.config_as<config::DetrConfig>());
    network.erase("classes");
    json model = {{"name", listed_name(config::detectors(), file.info().name, "detr_qna_tiny")},
                  {"config", network}};
    if (!start.random_weights) model["freeze"] = kFrozen;
    return model;
  }
  constexpr int64_t kStride = 16;  // of the backbone's map, at most
  config::QnAViTConfig backbone = file.config_as<config::QnAViTConfig>();
  json model = {{"name", "detr_qna_tiny"}, {"config", small_detector(survey)}};
  size_t stages = 1;
  while (stages < backbone.stages.size() && backbone.stride(stages) <= kStride) ++stages;
  if (!start.random_weights) {
    model["freeze"] = kFrozen;
    model["backbone"] = std::filesystem::absolute(start.file).lexically_normal().string();
    model["backbone_stages"] = stages;
    return model;
  }
  backbone.classes = 0;
  backbone.stages.resize(stages);
  model["config"]["backbone"] = config::to_json(backbone);
  return model;
}

Plan draft_detector(const Survey& survey, const Start& start, const engine::ModelFile& file) {
  const bool is_detector = file.kind() == config::Kind::kDetector;
  const config::Preprocess trained = file.info().preprocess;
  const int64_t shorter = is_detector && trained.resize > 0 ? trained.resize : 240;
  const int64_t longest = is_detector && trained.longest > 0 ? trained.longest : shorter * 4 / 3;
  const int64_t batch = batch_for(survey.train_images(), 2, 4);
  Plan plan;
  plan.recipe = {
      {"task", "detection"},
      {"batch", batch},
      {"clip", 0.1},
      {"data", survey.data},
      {"model", detector_model(survey, start, file)},
      {"preprocess",
       {{"resize", shorter}, {"longest", longest}, {"mean", trained.mean}, {"std", trained.std}}},
      {"augment",
       {{"flip", 0.5},
        {"shorter", {shorter}},
        {"longest", longest},
        {"crop", 0},
        {"color_jitter", 0.1}}},
      {"optimizer", {{"lr", 4e-4}, {"lr_batch", 0}, {"weight_decay", 1e-4}}}};
  return plan;
}

// ---- time ----

// Of an epoch and an evaluation.
struct Timing {
  double images_per_second = 0;
  double new_images_per_second = 0;  // of those that have to be read first
  double epoch = 0;
  double head_epoch = 0;  // of one in which only the head learns: no more than is seen forward
  double evaluation = 0;
  double reading = 0;  // once: what the first epoch takes longer than others
};

// pixels: of an image, as a share of those that the speed was measured with.
Timing timing_at(const Survey& survey, const train::Speed& speed, double pixels) {
  const auto images = static_cast<double>(survey.train_images());
  const auto val_images = static_cast<double>(survey.val_images());
  const double first = speed.first > 0 ? speed.first : speed.train;
  const double first_evaluate = speed.first_evaluate > 0 ? speed.first_evaluate : speed.evaluate;
  return {.images_per_second = speed.train / pixels,
          .new_images_per_second = first / pixels,
          .epoch = images / speed.train * pixels + kBetweenEpochs,
          .head_epoch = images / std::max(speed.train, speed.evaluate) * pixels + kBetweenEpochs,
          .evaluation = val_images / speed.evaluate * pixels,
          .reading = std::max(0.0, images / first - images / speed.train) +
                     std::max(0.0, val_images / first_evaluate - val_images / speed.evaluate)};
}

// Images are kept for later epochs where there is room for all of them, decoded.
bool fit_into_memory(const Survey& survey, const json& data) {
  const int64_t room = data.value("cache_mb", tasks::ReadingOptions{}.cache_mb) << 20;
  const int64_t one = 4 * survey.facts.median * survey.facts.median;  // 3 channels, 4 : 3
  return one * (survey.train_images() + survey.val_images()) <= room;
}

// How many epochs of so many, where the head learns first, are its own.
int64_t head_epochs(int64_t epochs) {
  return epochs < kFewEpochs ? 0 : std::max<int64_t>(1, epochs / 10);
}

struct Epochs {
  int64_t count = 0;
  int64_t evaluate_every = 1;
  int64_t steps = 0;  // of an epoch; 0: all
};

// As many as fit, no more than `most`.
Epochs epochs_for(const Timing& timing, double seconds, int64_t most, bool head_first) {
  const auto every =
      static_cast<int64_t>(std::ceil(timing.evaluation / (kEvaluation * timing.epoch)));
  Epochs epochs{.evaluate_every = std::clamp<int64_t>(every, 1, most)};
  const double each = timing.epoch + timing.evaluation / static_cast<double>(epochs.evaluate_every);
  const auto seconds_of = [&](int64_t count) {
    const double saved = timing.epoch - timing.head_epoch;
    return timing.reading + static_cast<double>(count) * each -
           (head_first ? static_cast<double>(head_epochs(count)) * saved : 0);
  };
  while (epochs.count < most && seconds_of(epochs.count + 1) <= seconds) ++epochs.count;
  epochs.evaluate_every = std::max<int64_t>(1, std::min(epochs.evaluate_every, epochs.count));
  return epochs;
}

// Where less than two epochs fit: four shorter ones, so that there is a best of several.
Epochs shorter_epochs(const Timing& timing, double seconds, int64_t batch) {
  const bool often = kFewEpochs * timing.evaluation < 0.3 * seconds;
  const double left = seconds - timing.evaluation * (often ? kFewEpochs : 1);
  const double steps =
      left * timing.new_images_per_second / static_cast<double>(batch * kFewEpochs);
  return {.count = kFewEpochs,
          .evaluate_every = often ? 1 : kFewEpochs,
          .steps = std::max<int64_t>(1, static_cast<int64_t>(steps))};
}

// ---- words ----

std::string seconds_text(double seconds) {
  return seconds < 90 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.1f} min", seconds / 60);
}

std::string why_size(int64_t size, int64_t full, const Plan& draft) {
  if (draft.keeps_size) return "as asked for";
  if (draft.recipe["model"].contains("backbone")) return "small, since short runs need many steps";
  if (size == full) return "the size that the weights know";
  if (size > full) {
    return fmt::format("larger than the {} that the weights know: few pictures leave the time",
                       full);
  }
  return fmt::format("smaller than the {} that the weights know, so that more epochs fit", full);
}

std::string why_epochs(const Epochs& epochs, const Survey& survey, const Timing& timing,
                       double seconds) {
  if (epochs.steps == 0) return fmt::format("as many as are of use in {}", seconds_text(seconds));
  return fmt::format(
      "of {} steps: an epoch of all {} pictures would take {}. To see each of them {} times, give "
      "--minutes {:.0f}",
      epochs.steps, with_commas(survey.train_images()), seconds_text(timing.epoch), kFewEpochs,
      std::ceil(kFewEpochs * (timing.epoch + timing.evaluation) / 60 * 1.1));
}

}  // namespace

Plan draft_plan(const Survey& survey, const Start& start) {
  const engine::ModelFile file = engine::ModelFile::open(start.file);
  const bool boxes = survey.kind == config::Kind::kDetector;
  Plan plan = boxes ? draft_detector(survey, start, file) : draft_classifier(survey, start, file);
  json& model = plan.recipe["model"];
  const bool takes_file = !start.random_weights && !model.contains("backbone");
  if (takes_file) model["weights"] = std::filesystem::absolute(start.file).lexically_normal();
  const bool learns_by_depth = !start.random_weights && !model.contains("freeze");
  plan.recipe["optimizer"]["depth_decay"] = learns_by_depth ? 0.7 : 1.0;
  plan.choices = {
      {"kind", boxes ? "detection" : "classification",
       boxes ? fmt::format("there are boxes: {}", survey.layout) : "each picture has one class"},
      {"network", model["name"].get<std::string>(),
       start.random_weights
           ? fmt::format("that of {}, with random weights, as asked for", name_of(start))
           : fmt::format("starts from {}, which has learned to see already", name_of(start))},
      {"batch", fmt::format("{}", plan.recipe["batch"].get<int64_t>()),
       "small, since short runs need many steps"},
      {"rate", fmt::format("{}", plan.recipe["optimizer"]["lr"].get<double>()),
       learns_by_depth        ? "of the head; times 0.7 for every stage below it, which knows more"
       : start.random_weights ? "the same everywhere, for all is new"
                              : "of all behind the backbone, which stays as it is"}};
  return plan;
}

Plan fit_to_time(const Plan& draft, const Survey& survey, const train::Speed& measured_speed,
                 double seconds, int64_t measured_size) {
  Plan plan = draft;
  json& recipe = plan.recipe;
  train::Speed speed = measured_speed;
  if (!fit_into_memory(survey, recipe["data"])) {
    if (speed.first > 0) speed.train = speed.first;
    if (speed.first_evaluate > 0) speed.evaluate = speed.first_evaluate;
  }
  const bool boxes = survey.kind == config::Kind::kDetector;
  const auto trained = config::preprocess_from_json(recipe["preprocess"], "plan");
  const int64_t full = boxes ? trained.resize : trained.crop[0];
  const int64_t most = boxes ? kMostEpochsOfBoxes : kMostEpochs;
  const bool measured = measured_size > 0;
  const bool head_first =
      recipe["model"].contains("weights") && !recipe["model"].contains("freeze");
  int64_t size = measured ? measured_size : full;
  const auto timing_of = [&, of = size](int64_t side) {
    const double scale = static_cast<double>(side) / static_cast<double>(of);
    return timing_at(survey, speed, scale * scale);
  };
  const auto epochs_of = [&](int64_t side) {
    return epochs_for(timing_of(side), seconds, most, head_first);
  };
  if (!boxes && !draft.keeps_size && !measured) {
    const int64_t smallest = std::max(kSmallSize, full / 2);
    const int64_t largest = std::min(2 * full, survey.facts.median);
    while (epochs_of(size).count < kFewEpochs && size - kSizeStep >= smallest) size -= kSizeStep;
    while (size + kSizeStep <= largest && epochs_of(size + kSizeStep).count >= kManyEpochs) {
      size += kSizeStep;
    }
  }
  const Timing timing = timing_of(size);
  Epochs epochs = epochs_of(size);
  const bool asked = recipe.contains("epochs");
  if (asked) {
    epochs.count = recipe["epochs"].get<int64_t>();
    epochs.evaluate_every = std::clamp<int64_t>(epochs.evaluate_every, 1, epochs.count);
  } else if (epochs.count < 2) {
    epochs = shorter_epochs(timing, seconds, recipe["batch"].get<int64_t>());
    recipe["steps_per_epoch"] = epochs.steps;
  }
  if (size != full) set_classifier_size(recipe, trained, size);
  const int64_t of_head = head_first ? head_epochs(epochs.count) : 0;
  recipe["epochs"] = epochs.count;
  recipe["evaluate_every"] = epochs.evaluate_every;
  recipe["freeze_epochs"] = of_head;
  // Much is won while the rate falls to nothing: only a run whose best lies in the first third ends
  // before that.
  recipe["patience"] = std::max(kLeastPatience, 2 * epochs.count / 3);
  recipe["schedule"] = {{"warmup_epochs", std::min(1.0, 0.1 * static_cast<double>(epochs.count))},
                        {"min_lr", 0.01}};
  plan.choices.push_back({"pictures", fmt::format("{} pixels", size), why_size(size, full, draft)});
  plan.choices.push_back({"speed", fmt::format("{:.0f} pictures/s", timing.images_per_second),
                          "measured here, with what is planned"});
  plan.choices.push_back({"epochs", fmt::format("{}", epochs.count),
                          asked ? "as asked for" : why_epochs(epochs, survey, timing, seconds)});
  const std::string end =
      fmt::format("ends when nothing gets better for {} epochs", recipe["patience"].get<int64_t>());
  plan.choices.push_back(
      {"order", of_head > 0 ? "head first" : "all at once",
       of_head > 0 ? fmt::format("epochs of the head: {}, then all; {}", of_head, end) : end});
  return plan;
}

}  // namespace qna::finetune
