#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/models/registry.h"

namespace qna::cli {
namespace {

void print_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const models::ModelEntry& entry : models::models()) {
    list.push_back({{"name", entry.name},
                    {"summary", entry.summary},
                    {"parameters", entry.parameters},
                    {"gflops", entry.gflops},
                    {"paper_top1", entry.paper_top1},
                    {"paper_images_per_second", entry.paper_per_second},
                    {"recipe", entry.recipe},
                    {"config", models::to_json(entry.config)}});
  }
  fmt::print("{}\n", list.dump(2));
}

void print_table() {
  fmt::print("{:<17} {:>6} {:>12} {:>8} {:>7} {:>9}  {}\n", "model", "pixels", "parameters",
             "GFLOPs", "top-1 %", "images/s", "what it is (recipe)");
  for (const models::ModelEntry& entry : models::models()) {
    const auto paper = [](double value, int digits) {
      return value == 0 ? std::string("-") : fmt::format("{:.{}f}", value, digits);
    };
    fmt::print("{:<17} {:>6} {:>12} {:>8.3f} {:>7} {:>9}  {} ({})\n", entry.name,
               entry.config.image_size[0], with_commas(entry.parameters), entry.gflops,
               paper(entry.paper_top1, 1), paper(entry.paper_per_second, 0), entry.summary,
               entry.recipe);
  }
  fmt::print(
      "\nGFLOPs: 2 per multiply-add, for one image. top-1 (ImageNet) and images/s (one V100) are "
      "the"
      "\npaper's. Recipes are in recipes/. Next: qna info MODEL\n");
}

}  // namespace

void add_models(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("models", "List the models");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "As JSON, with every model's configuration");
  verb->footer("Examples:\n  qna models\n  qna models --json");
  verb->callback([json] { *json ? print_json() : print_table(); });
}

}  // namespace qna::cli
