#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/open_dataset.h"
#include "qna/data/picture_dataset.h"
#include "qna/image/color.h"
#include "qna/image/resize.h"
#include "qna/image/write_png.h"
#include "qna/predict/detection_pictures.h"
#include "qna/recipe/auto_encoding_options.h"
#include "qna/recipe/classification_options.h"
#include "qna/recipe/detection_options.h"
#include "qna/recipe/recipe.h"
#include "qna/viz/contact_sheet.h"

namespace qna::cli {
namespace {

using image::Image;

struct PreviewArguments {
  std::string recipe;
  std::vector<std::string> settings;
  std::string out = "preview.png";
  int64_t pictures = 6;
  int64_t variants = 7;
  int64_t epoch = 0;
};

// Rows of cells: a picture as in validation, then as in some epochs of training.
struct Preview {
  std::vector<viz::Captioned> cells;
  int64_t columns = 0;
  std::string title, subtitle;
};

// The places of the pictures that are shown, all over the data set.
std::vector<int64_t> places(const PreviewArguments& a, int64_t size) {
  const int64_t count = std::min(a.pictures, size);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(i * size / count);
  return all;
}

data::Random random_of(const train::Recipe& recipe, int64_t epoch, int64_t picture) {
  return data::Random(static_cast<uint64_t>(recipe.seed), static_cast<uint64_t>(epoch),
                      static_cast<uint64_t>(picture), data::kAugment);
}

std::string epoch_caption(int64_t epoch) { return fmt::format("epoch {}", epoch + 1); }

// Small pictures are drawn larger, so that people can see them.
Image to_cell(const Image& picture) {
  constexpr int64_t kSide = 112;
  const int64_t zoom = std::max<int64_t>(1, kSide / std::max(picture.height, picture.width));
  return image::resize(image::to_channels(picture, 3), zoom * picture.height, zoom * picture.width,
                       image::Filter::kBilinear);
}

Preview preview_classification(const PreviewArguments& a, const train::Recipe& recipe) {
  const tasks::ClassificationOptions options = tasks::classification_options(recipe.sections);
  data::DatasetOptions which = options.data;
  which.split = options.train;
  const auto dataset = data::open_dataset(which);
  const int64_t channels = options.preprocess.channels();
  const std::vector<std::string> labels = tasks::class_labels(options, *dataset);
  Preview made{.columns = options.augment.has_value() ? a.variants + 1 : 0,
               .title = fmt::format("{}: {} pictures, {} classes", options.data.path,
                                    dataset->size(), dataset->classes().size()),
               .subtitle = options.augment.has_value()
                               ? "first in each row as in validation, then as in the epochs of "
                                 "training (before mixing)"
                               : "as in training and validation"};
  for (const int64_t index : places(a, dataset->size())) {
    const Image picture = dataset->read(index, channels);
    made.cells.push_back(
        {to_cell(data::fit(picture, options.preprocess)), labels[dataset->label(index)]});
    if (!options.augment.has_value()) continue;
    for (int64_t epoch = a.epoch; epoch < a.epoch + a.variants; ++epoch) {
      data::Random random = random_of(recipe, epoch, index);
      Image changed = data::augment(picture, *options.augment, random);
      // Erasing is defined on normalised numbers: there and back.
      std::vector<float> numbers(changed.pixels.size());
      data::to_floats(changed, options.preprocess, numbers.data());
      data::erase(numbers.data(), changed.height, changed.width, channels, options.augment->erase,
                  random);
      for (size_t p = 0; p < numbers.size(); ++p) {
        const size_t c = p % static_cast<size_t>(channels);
        const float value =
            255 * (numbers[p] * options.preprocess.std[c] + options.preprocess.mean[c]);
        changed.pixels[p] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
      }
      made.cells.push_back({to_cell(changed), epoch_caption(epoch)});
    }
  }
  return made;
}

// With its boxes, small enough that many fit on a sheet.
Image to_cell(const data::DetectionSample& sample, const std::vector<std::string>& labels) {
  constexpr double kSide = 260;
  const Image& picture = sample.picture;
  const double scale = kSide / static_cast<double>(std::max(picture.height, picture.width));
  const auto side = [&](int64_t length) {
    return std::max<int64_t>(1, std::llround(scale * static_cast<double>(length)));
  };
  const data::DetectionSample small =
      data::resize(sample, side(picture.height), side(picture.width), image::Filter::kBilinear);
  std::vector<predict::DrawnBox> boxes;
  for (const data::LabelledBox& object : small.objects) {
    boxes.push_back({.label = object.label, .box = object.box, .text = labels[object.label]});
  }
  return predict::draw_boxes(small.picture, boxes);
}

Preview preview_detection(const PreviewArguments& a, const train::Recipe& recipe) {
  const tasks::DetectionTaskOptions options = tasks::detection_options(recipe.sections);
  const data::DetectionDataset dataset(options.train);
  const std::vector<std::string>& labels = dataset.classes();
  Preview made{
      .columns = options.augment.has_value() ? a.variants + 1 : 0,
      .title = fmt::format("{}: {} pictures, {} objects of {} classes", options.train.annotations,
                           dataset.size(), dataset.truth().annotations.size(), labels.size()),
      .subtitle = options.augment.has_value()
                      ? "first in each row the picture, then as in the epochs of training"
                      : "all of it, as in training and validation"};
  for (const int64_t index : places(a, dataset.size())) {
    const Image picture = dataset.read(index);
    const data::DetectionSample sample{picture,
                                       dataset.objects(index, picture.height, picture.width)};
    made.cells.push_back(
        {to_cell(sample, labels), std::filesystem::path(dataset.name(index)).filename().string()});
    if (!options.augment.has_value()) continue;
    for (int64_t epoch = a.epoch; epoch < a.epoch + a.variants; ++epoch) {
      data::Random random = random_of(recipe, epoch, index);
      made.cells.push_back(
          {to_cell(data::augment(sample, *options.augment, random), labels), epoch_caption(epoch)});
    }
  }
  return made;
}

Preview preview_auto_encoding(const PreviewArguments& a, const train::Recipe& recipe) {
  const tasks::AutoEncodingOptions options = tasks::auto_encoding_options(recipe.sections);
  const data::PictureDataset dataset(options.path);
  const int64_t count = dataset.size() - options.val_count;
  check(count >= 1, "recipe: data.val_count must be less than {}, as {} has pictures, got {}",
        dataset.size(), options.path, options.val_count);
  Preview made{.title = fmt::format("{}: {} pictures to train", options.path, count),
               .subtitle = "as they go in"};
  for (const int64_t index : places(a, count)) {
    const Image picture = dataset.read(index, options.preprocess.channels());
    made.cells.push_back({to_cell(data::fit(picture, options.preprocess)),
                          std::filesystem::path(dataset.name(index)).filename().string()});
  }
  return made;
}

constexpr struct {
  const char* task;
  Preview (*make)(const PreviewArguments& a, const train::Recipe& recipe);
} kPreviews[] = {{"classification", &preview_classification},
                 {"detection", &preview_detection},
                 {"auto-encoding", &preview_auto_encoding}};

void preview(const PreviewArguments& a) {
  const train::Recipe recipe = train::read_recipe(a.recipe, a.settings);
  std::vector<const char*> tasks;
  for (const auto& row : kPreviews) {
    tasks.push_back(row.task);
    if (recipe.task != row.task) continue;
    const Preview made = row.make(a, recipe);
    image::write_png(a.out, viz::contact_sheet(made.cells, {.columns = made.columns,
                                                            .title = {made.title, made.subtitle}}));
    fmt::print("{}\n", a.out);
    return;
  }
  fail("recipe: task must be one of {}, got '{}'", fmt::join(tasks, ", "), recipe.task);
}

}  // namespace

void add_data(Command program) {
  Command verb = program.verb("data", "Look at the pictures that a recipe trains on");
  verb.require_verb();
  Command sub = verb.verb("preview", "Write a sheet of the pictures as training sees them");
  auto a = std::make_shared<PreviewArguments>();
  sub.option("recipe", a->recipe, "Recipe (.toml)").required().type_name("RECIPE");
  sub.option("--set", a->settings, "Another value for a key of the recipe")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.option("-o,--out", a->out, "PNG file [preview.png]").type_name("FILE");
  sub.option("--pictures", a->pictures, "Rows [6]").range(1, 100);
  sub.option("--variants", a->variants, "Columns, one per epoch, where pictures are augmented [7]")
      .range(1, 100);
  sub.option("--epoch", a->epoch, "First epoch, from 0 [0]").range(int64_t{0}, int64_t{1} << 40);
  sub.footer(
      "The pictures are those that training sees: augmentation is a function of seed, epoch and\n"
      "picture. Detection shows the boxes, auto-encoding the pictures as they go in.\n\n"
      "Examples:\n"
      "  qna data preview recipes/fashion_mnist.toml\n"
      "  qna data preview recipes/imagenette.toml --set data.path=imagenette2 -o look.png");
  sub.callback([a] { preview(*a); });
}

}  // namespace qna::cli
