#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/recipe/recipe.h"

namespace qna::cli {
namespace {

void list_recipes(bool as_json) {
  const std::vector<NamedRecipe> recipes = bundled_recipes();
  check(!recipes.empty(), "the recipes that come with the program are not beside it (share/qna/{})",
        "recipes");
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, path] : recipes) {
    const train::Recipe recipe = train::read_recipe(path);
    const train::Recipe::About& about = recipe.about;
    if (as_json) {
      all.push_back({{"name", name},
                     {"task", recipe.task},
                     {"what", about.what},
                     {"budget", about.budget},
                     {"expect", about.expect},
                     {"path", path}});
      continue;
    }
    fmt::print("{:20}  {}\n", name, about.what);
    fmt::print("{:20}  cost: {}\n", "", about.budget);
    fmt::print("{:20}  gives: {}\n", "", about.expect);
  }
  if (as_json) {
    fmt::print("{}\n", all.dump(1));
  } else {
    fmt::print("\nNext: qna train NAME --set data.path=FOLDER\n");
  }
}

}  // namespace

void add_recipes(Command program) {
  Command verb = program.verb("recipes", "List the recipes that come with the program");
  auto as_json = std::make_shared<bool>(false);
  verb.flag("--json", *as_json, "One JSON list");
  verb.footer(
      "A recipe is a file to start from: 'path' in --json says where it lies.\n\n"
      "Example:\n"
      "  qna recipes");
  verb.callback([as_json] { list_recipes(*as_json); });
}

}  // namespace qna::cli
