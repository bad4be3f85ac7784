#include <fmt/format.h>

#include <memory>

#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/open_dataset.h"
#include "qna/image/color.h"
#include "qna/image/resize.h"
#include "qna/image/write_png.h"
#include "qna/recipe/classification_options.h"
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

// Small pictures are drawn larger, so that people can see them.
Image to_cell(const Image& picture) {
  constexpr int64_t kSide = 112;
  const int64_t zoom = std::max<int64_t>(1, kSide / std::max(picture.height, picture.width));
  return image::resize(image::to_channels(picture, 3), zoom * picture.height, zoom * picture.width,
                       image::Filter::kBilinear);
}

void preview(const PreviewArguments& a) {
  const train::Recipe recipe = train::read_recipe(a.recipe, a.settings);
  check(recipe.task == "classification", "recipe: task must be classification, got '{}'",
        recipe.task);
  const tasks::ClassificationOptions options = tasks::classification_options(recipe.sections);
  data::DatasetOptions which = options.data;
  which.split = options.train;
  const auto dataset = data::open_dataset(which);
  const int64_t channels = options.preprocess.channels();
  const std::vector<std::string> labels = tasks::class_labels(options, *dataset);

  std::vector<viz::Captioned> cells;
  for (int64_t i = 0; i < std::min(a.pictures, dataset->size()); ++i) {
    const int64_t index = i * dataset->size() / std::min(a.pictures, dataset->size());
    const Image picture = dataset->read(index, channels);
    cells.push_back(
        {to_cell(data::fit(picture, options.preprocess)), labels[dataset->label(index)]});
    for (int64_t epoch = a.epoch; epoch < a.epoch + a.variants; ++epoch) {
      if (!options.augment.has_value()) break;
      data::Random random(static_cast<uint64_t>(recipe.seed), static_cast<uint64_t>(epoch),
                          static_cast<uint64_t>(index), data::kAugment);
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
      cells.push_back({to_cell(changed), fmt::format("epoch {}", epoch + 1)});
    }
  }
  const int64_t columns = options.augment.has_value() ? a.variants + 1 : 0;
  image::write_png(
      a.out, viz::contact_sheet(
                 cells, {.columns = columns,
                         .title = {fmt::format("{}: {} pictures, {} classes", options.data.path,
                                               dataset->size(), dataset->classes().size()),
                                   "first in each row as in validation, then as in "
                                   "the epochs of training (before mixing)"}}));
  fmt::print("{}\n", a.out);
}

}  // namespace

void add_data(Command program) {
  Command verb = program.verb("data", "Look at the pictures that a recipe trains on");
  verb.require_verb();
  Command sub = verb.verb("preview", "Write a sheet of augmented pictures");
  auto a = std::make_shared<PreviewArguments>();
  sub.option("recipe", a->recipe, "Recipe (.toml)").required().type_name("RECIPE");
  sub.option("--set", a->settings, "Another value for a key of the recipe")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.option("-o,--out", a->out, "PNG file [preview.png]").type_name("FILE");
  sub.option("--pictures", a->pictures, "Rows [6]").range(1, 100);
  sub.option("--variants", a->variants, "Columns, one per epoch [7]").range(1, 100);
  sub.option("--epoch", a->epoch, "First epoch, from 0 [0]").range(int64_t{0}, int64_t{1} << 40);
  sub.footer(
      "The pictures are those that training sees: augmentation is a function of seed, epoch and\n"
      "picture.\n\n"
      "Examples:\n"
      "  qna data preview recipes/fashion_mnist.toml\n"
      "  qna data preview recipes/imagenette.toml --set data.path=imagenette2 -o look.png");
  sub.callback([a] { preview(*a); });
}

}  // namespace qna::cli
