#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <utility>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/models/ablations.h"
#include "qna/models/cost.h"
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

models::Cost cost_of(const models::QnAViTConfig& config) {
  return models::total_cost(
      models::layer_costs(config, config.image_size[0], config.image_size[1]));
}

void print_ablations_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const models::Ablation& row : models::ablations()) {
    const models::Cost cost = cost_of(row.config);
    list.push_back({{"table", row.table},
                    {"row", row.row},
                    {"parameters", cost.parameters},
                    {"gmacs", cost.flops / 2e9},
                    {"paper_parameters_millions", row.paper_parameters},
                    {"paper_gmacs", row.paper_gmacs},
                    {"paper_top1", row.paper_top1},
                    {"note", models::ablation_note(row.table)},
                    {"config", models::to_json(row.config)}});
  }
  fmt::print("{}\n", list.dump(2));
}

// Broken at spaces into lines of at most 100 characters, each with its end.
std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string out, line;
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > 100) out += std::exchange(line, "") + "\n";
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + line + "\n";
}

void print_ablations() {
  const auto paper = [](double value, int digits) {
    return value == 0 ? std::string("-") : fmt::format("{:.{}f}", value, digits);
  };
  std::string_view table;
  for (const models::Ablation& row : models::ablations()) {
    if (table != row.table) {
      if (!table.empty()) fmt::print("\n");
      table = row.table;
      fmt::print("{}\n{}", table, wrapped(models::ablation_note(table)));
      fmt::print("  {:<64} {:>8} {:>7} {:>7} {:>7} {:>7}\n", "", "M", "paper", "GMACs", "paper",
                 "top-1 %");
    }
    const models::Cost cost = cost_of(row.config);
    fmt::print("  {:<64} {:>8.3f} {:>7} {:>7.3f} {:>7} {:>7}\n", row.row, cost.parameters / 1e6,
               paper(row.paper_parameters, 3), cost.flops / 2e9, paper(row.paper_gmacs, 3),
               paper(row.paper_top1, 2));
  }
  fmt::print(
      "\nM: millions of parameters. GMACs: half of the GFLOPs of `qna models`, as the paper counts."
      "\ntop-1 is the paper's. Blocks are counted with the one that down-samples. --json prints the"
      "\nconfigurations.\n");
}

}  // namespace

void add_models(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("models", "List the models");
  auto json = std::make_shared<bool>(false);
  auto ablations = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "As JSON, with every model's configuration");
  verb->add_flag("--ablations", *ablations,
                 "Every row of the paper's tables instead, ours beside its figures");
  verb->footer("Examples:\n  qna models\n  qna models --json\n  qna models --ablations");
  verb->callback([json, ablations] {
    if (*ablations) {
      *json ? print_ablations_json() : print_ablations();
    } else {
      *json ? print_json() : print_table();
    }
  });
}

}  // namespace qna::cli
