#include <fmt/format.h>

#include <memory>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/image/write_png.h"
#include "qna/kinds/kind.h"

namespace qna::cli {
namespace {

struct PreviewArguments {
  std::string recipe;
  std::vector<std::string> settings;
  std::string out = "preview.png";
  kinds::PreviewOptions options;
};

void preview(const PreviewArguments& a) {
  const train::Recipe recipe = train::read_recipe(find_recipe(a.recipe), a.settings);
  const kinds::Preview made = kinds::row_of_task(recipe.task).preview(recipe, a.options);
  image::write_png(a.out, viz::contact_sheet(made.cells, {.columns = made.columns,
                                                          .title = {made.title, made.subtitle}}));
  fmt::print("{}\n", a.out);
}

}  // namespace

void add_data(Command program) {
  Command verb = program.verb("data", "Look at the pictures that a recipe trains on");
  verb.require_verb();
  Command sub = verb.verb("preview", "Write a sheet of the pictures as training sees them");
  auto a = std::make_shared<PreviewArguments>();
  sub.option("recipe", a->recipe, "Recipe (.toml), or the name of one")
      .required()
      .type_name("RECIPE");
  sub.option("--set", a->settings, "Another value for a key of the recipe")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.option("-o,--out", a->out, "PNG file [preview.png]").type_name("FILE");
  sub.option("--pictures", a->options.images, "Rows [6]").range(1, 100);
  sub.option("--variants", a->options.variants,
             "Columns, one per epoch, where pictures are augmented [7]")
      .range(1, 100);
  sub.option("--epoch", a->options.epoch, "First epoch, from 0 [0]")
      .range(int64_t{0}, int64_t{1} << 40);
  sub.footer(
      "The pictures are those that training sees: augmentation is a function of seed, epoch and\n"
      "picture. Detection shows the boxes, auto-encoding the pictures as they go in.\n\n"
      "Examples:\n"
      "  qna data preview fashion_mnist\n"
      "  qna data preview imagenette --set data.path=imagenette2 -o look.png");
  sub.callback([a] { preview(*a); });
}

}  // namespace qna::cli
