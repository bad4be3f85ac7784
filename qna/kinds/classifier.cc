// What can be done with a classifier: see kind.h.
#include <fmt/format.h>

#include <algorithm>

#include "qna/data/augment.h"
#include "qna/data/open_dataset.h"
#include "qna/kinds/evaluation.h"
#include "qna/kinds/preview.h"
#include "qna/recipe/classification_options.h"

namespace qna::kinds {
namespace {

Measured evaluate_classifier(const engine::Model& model, const EvaluateOptions& o,
                             const EvaluateWatcher& watcher) {
  check_no_objects(model, o);
  check_all_images(model, o);
  const int64_t classes = model.classes();
  check(classes > 0, "{}: this model has no classes", model.origin());
  const auto dataset = data::open_dataset({.path = o.data, .split = o.split});
  check(static_cast<int64_t>(dataset->classes().size()) == classes,
        "{}: the data must have the {} classes of the model, got {}", o.data, classes,
        dataset->classes().size());
  data::LoaderOptions options = loader_options(o, /*usual_batch=*/64);
  options.classes = classes;
  data::Loader loader(dataset, model.info().preprocess, std::nullopt, {}, options);
  engine::Context context;
  const predict::Evaluation result = predict::evaluate_classifier(
      model, loader, context, told_in_images(watcher, options.batch, dataset->size()));
  Measured measured{.images = result.images, .broken = loader.broken()};
  measured.numbers.push_back({"top1", result.top1, fmt::format("top-1  {:6.2f} %", result.top1)});
  // Of five classes at most it says nothing to people.
  measured.numbers.push_back(
      {"top5", result.top5,
       classes > 5 ? fmt::format("top-5  {:6.2f} %", result.top5) : std::string()});
  measured.numbers.push_back({"loss", result.loss, fmt::format("loss   {:7.4f}", result.loss)});
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
  const std::vector<std::string> labels = tasks::class_labels(options, *dataset);
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
          .run = run_classifier,
          .remarks = [](const config::NetworkConfig&) { return std::vector<std::string>(); }};
}

}  // namespace qna::kinds
