// What can be done with a classifier: see kind.h.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "qna/base/text.h"
#include "qna/data/augment.h"
#include "qna/data/open_dataset.h"
#include "qna/data/subset.h"
#include "qna/format/fields.h"
#include "qna/format/text.h"
#include "qna/kinds/evaluation.h"
#include "qna/kinds/preview.h"
#include "qna/predict/classify.h"
#include "qna/predict/shift.h"
#include "qna/recipe/classification_options.h"

namespace qna::kinds {
namespace {

// How many of the data's classes training took; 0: all.
int64_t kept_classes(const engine::Model& model) {
  int64_t keep = 0;
  if (model.info().training.is_object()) {
    format::Fields(model.info().training, model.origin(), "training")("keep_classes", keep);
  }
  return keep;
}

// The images that training held back, if the file tells of such, and a note where they are others.
std::shared_ptr<const data::Dataset> held_back(const engine::Model& model, const EvaluateOptions& o,
                                               const EvaluateWatcher& watcher) {
  const nlohmann::json& training = model.info().training;
  const auto split = training.is_object() ? training.find("split") : training.end();
  if (split == training.end()) return nullptr;
  const format::Fields fields(*split, model.origin(), "training.split");
  data::DatasetOptions options{.path = o.data, .split = o.split.value_or("val")};
  int64_t seed = 0;
  std::string names;
  fields("val_fraction", options.val_fraction);
  fields("split_seed", seed);
  fields("names", names);
  options.keep_classes = kept_classes(model);
  if (options.split != "val" && options.split != "train") return nullptr;
  options.split_seed = static_cast<uint64_t>(seed);
  std::shared_ptr<const data::Dataset> val;
  try {
    data::DatasetOptions held = options;
    held.split = "val";
    val = data::open_dataset(held);
  } catch (const Error&) {
    return nullptr;  // no data that could be divided so; who opens it otherwise says more
  }
  const bool same = data::fingerprint(*val) == names;
  // Another data set with a split of its own.
  if (!same && data::has_split(o.data, options.split)) return nullptr;
  watcher.note(
      same ? fmt::format("these are the pictures that training {}",
                         options.split == "val" ? "held back" : "saw")
           : fmt::format("{} has other pictures than at training: a share of {} is measured as at "
                         "training, but some of them may have been trained on",
                         o.data, options.val_fraction));
  return options.split == "val" ? val : data::open_dataset(options);
}

// Whether they are just "0", "1" ...: labels of files that have no names.
bool are_numbers(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] != std::to_string(i)) return false;
  }
  return true;
}

bool are_among(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  return std::all_of(some.begin(), some.end(), [&](const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  });
}

// The first of `some` that is not among `all`.
std::string unknown_of(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  for (const std::string& name : some) {
    if (!are_among({name}, all)) return name;
  }
  return some.front();
}

bool shares_a_name(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& name) { return are_among({name}, b); });
}

// The labels of the data set as the model numbers them: by name, or in order where no name is
// known.
std::shared_ptr<const data::Dataset> with_labels_of(const engine::Model& model,
                                                    std::shared_ptr<const data::Dataset> dataset,
                                                    const EvaluateOptions& o,
                                                    const EvaluateWatcher& watcher) {
  const std::vector<std::string>& found = dataset->classes();
  const auto classes = static_cast<size_t>(model.classes());
  // What training called them: the names of its folders, where those for people are others.
  std::vector<std::string> names = model.info().labels;
  const nlohmann::json& training = model.info().training;
  if (training.is_object() && training.contains("folders")) {
    const format::Fields fields(training, model.origin(), "training");
    std::vector<std::string> folders;
    fields("folders", folders);
    if (folders.size() == classes && are_among(found, folders)) names = folders;
  }
  if (names.size() == classes && are_among(found, names)) {
    if (found.size() < classes) {
      watcher.note(
          fmt::format("{} has {} of the model's {} classes", o.data, found.size(), classes));
    }
    return found == names ? dataset : data::relabelled(dataset, names);
  }
  const bool numbers = are_numbers(found);
  check(found.size() == classes || (numbers && found.size() < classes),
        "{}: its classes must be among the {} of the model, such as {}; got {}, such as {}", o.data,
        classes, names.empty() ? "0" : format::in_quotes(names.front()), found.size(),
        format::in_quotes(unknown_of(found, names)));
  check(names.empty() || numbers || !shares_a_name(found, names),
        "{}: the class {} is not one of the model's {}{}", o.data,
        format::in_quotes(unknown_of(found, names)), classes,
        did_you_mean(unknown_of(found, names), names));
  if (!numbers && !names.empty()) {
    watcher.note(fmt::format(
        "the classes of {} have other names than the model's and are taken in order: {} for {}, {} "
        "for {} ...; if that is wrong, so are the numbers",
        o.data, format::in_quotes(found[0]), format::in_quotes(names[0]),
        format::in_quotes(found.back()), format::in_quotes(names.back())));
  }
  return dataset;
}

std::shared_ptr<const data::Dataset> open_for(const engine::Model& model, const EvaluateOptions& o,
                                              const EvaluateWatcher& watcher) {
  std::shared_ptr<const data::Dataset> dataset = held_back(model, o, watcher);
  if (dataset == nullptr) {
    dataset = data::open_dataset({.path = o.data, .split = o.split.value_or("val")});
  }
  if (!dataset->left_out().empty()) watcher.note(dataset->left_out());
  const std::vector<std::string>& labels = model.info().labels;
  if (kept_classes(model) > 0 && dataset->classes().size() > labels.size() &&
      are_among(labels, dataset->classes())) {
    watcher.note(fmt::format("only the {} of {} classes that training took (keep_classes)",
                             labels.size(), dataset->classes().size()));
    dataset = data::only_classes(dataset, labels);
  }
  return with_labels_of(model, dataset, o, watcher);
}

// Of every class that occurs: how much of it was found, and how much of what was taken for it is
// it.
void add_classes(Measured& measured, const engine::Model& model,
                 const std::vector<int64_t>& confusion) {
  const auto classes = static_cast<size_t>(model.classes());
  const std::vector<std::string>& labels = model.info().labels;
  for (size_t c = 0; c < classes; ++c) {
    int64_t count = 0, taken = 0;
    for (size_t other = 0; other < classes; ++other) {
      count += confusion[c * classes + other];
      taken += confusion[other * classes + c];
    }
    if (count == 0) continue;
    const double right = 100.0 * static_cast<double>(confusion[c * classes + c]);
    measured.classes.push_back(
        {.name = predict::class_name(c, labels),
         .count = count,
         .numbers = {{"recall", right / static_cast<double>(count), ""},
                     {"precision", taken == 0 ? 0 : right / static_cast<double>(taken), ""}}});
  }
}

Measured evaluate_classifier(const engine::Model& model, const EvaluateOptions& o,
                             const EvaluateWatcher& watcher) {
  check_no_objects(model, o);
  check_all_images(model, o);
  const int64_t classes = model.classes();
  check(classes > 0, "{}: this model has no classes", model.origin());
  const auto dataset = open_for(model, o, watcher);
  data::LoaderOptions options = loader_options(o, /*usual_batch=*/64);
  options.classes = classes;
  data::Loader loader(dataset, model.info().preprocess, std::nullopt, {}, options);
  engine::Context context(o.threads);
  const predict::Evaluation result = predict::evaluate_classifier(
      model, loader, context, told_in_images(watcher, options.batch, dataset->size()));
  Measured measured{.images = result.images, .broken = loader.broken()};
  measured.numbers.push_back({"top1", result.top1, fmt::format("top-1  {:6.2f} %", result.top1)});
  // Of five classes at most it says nothing to people.
  measured.numbers.push_back(
      {"top5", result.top5,
       classes > 5 ? fmt::format("top-5  {:6.2f} %", result.top5) : std::string()});
  measured.numbers.push_back({"loss", result.loss, fmt::format("loss   {:7.4f}", result.loss)});
  if (!o.shifts.empty()) {
    for (const predict::ShiftEvaluation& moved :
         predict::evaluate_shifts(model, loader, o.shifts, context,
                                  told_in_images(watcher, options.batch, dataset->size()))) {
      measured.numbers.push_back(
          {fmt::format("shift{}_top1", moved.pixels), moved.top1,
           fmt::format("moved by {} px: top-1 {:.2f} %, {:.2f} % of the answers stay", moved.pixels,
                       moved.top1, moved.same)});
      measured.numbers.push_back({fmt::format("shift{}_same", moved.pixels), moved.same, ""});
    }
  }
  add_classes(measured, model, result.confusion);
  return measured;
}

// As training has it, erased parts too: erasing is defined on normalised numbers, so there and
// back.
image::Image augmented(const image::Image& image, const tasks::ClassificationOptions& options,
                       Random& random) {
  image::Image changed = data::augment(image, *options.augment, random);
  const config::Preprocess& preprocess = options.preprocess;
  const int64_t channels = preprocess.channels();
  std::vector<float> numbers(changed.pixels.size());
  data::to_floats(changed, preprocess, numbers.data());
  data::erase(numbers.data(), changed.height, changed.width, channels, options.augment->erase,
              random);
  for (size_t p = 0; p < numbers.size(); ++p) {
    const size_t c = p % static_cast<size_t>(channels);
    const float value = 255 * (numbers[p] * preprocess.std[c] + preprocess.mean[c]);
    changed.pixels[p] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
  }
  return changed;
}

Preview preview_classification(const train::Recipe& recipe, const PreviewOptions& o) {
  const tasks::ClassificationOptions options = tasks::classification_options(recipe.sections);
  data::DatasetOptions which = options.data;
  which.split = options.train;
  const auto dataset = data::open_dataset(which);
  const std::vector<std::string> labels = tasks::class_labels(options, dataset->classes());
  const bool augments = options.augment.has_value();
  Preview made{.columns = augments ? o.variants + 1 : 0,
               .title = fmt::format("{}: {} pictures, {} classes", options.data.path,
                                    dataset->size(), dataset->classes().size()),
               .subtitle = augments
                               ? "first in each row as in validation, then as in the epochs of "
                                 "training (before mixing)"
                               : "as in training and validation"};
  for (const int64_t index : places(o, dataset->size())) {
    const image::Image image = dataset->read(index, options.preprocess.channels());
    made.cells.push_back(
        {to_cell(data::fit(image, options.preprocess)), labels[dataset->label(index)]});
    if (!augments) continue;
    add_epochs(made, o, recipe, index,
               [&](Random& random) { return to_cell(augmented(image, options, random)); });
  }
  return made;
}

Plan plan_classifier(const train::Recipe& recipe) {
  const tasks::ClassificationOptions options = tasks::classification_options(recipe.sections);
  data::DatasetOptions which = options.data;
  which.split = options.train;
  const auto dataset = data::open_dataset(which);
  const auto classes = static_cast<int64_t>(dataset->classes().size());
  return {tasks::model_config(options, classes), dataset->size()};
}

void run_classifier(const engine::Model& model, const engine::Images& images,
                    engine::Context& context) {
  std::vector<float> logits(static_cast<size_t>(images.batch * model.classes()));
  model.classify(images, logits.data(), context);
}

}  // namespace

KindRow classifier() {
  return {.kind = config::Kind::kClassifier,
          .task = "classification",
          .evaluate = evaluate_classifier,
          .preview = preview_classification,
          .plan = plan_classifier,
          .run = run_classifier,
          .remarks = [](const config::NetworkConfig&) { return std::vector<std::string>(); }};
}

}  // namespace qna::kinds
