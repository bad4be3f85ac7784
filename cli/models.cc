#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <utility>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/text.h"
#include "qna/config/ablations.h"
#include "qna/config/cost.h"
#include "qna/config/detectors.h"
#include "qna/config/detr_cost.h"
#include "qna/config/registry.h"

namespace qna::cli {
namespace {

void add_models_json(nlohmann::json& list) {
  for (const config::ModelEntry& entry : config::models()) {
    list.push_back({{"name", entry.name},
                    {"kind", config::name_of(config::Kind::kClassifier)},
                    {"summary", entry.summary},
                    {"parameters", entry.parameters},
                    {"gflops", entry.gflops},
                    {"paper_top1", entry.paper_top1},
                    {"paper_images_per_second", entry.paper_per_second},
                    {"recipe", entry.recipe},
                    {"config", config::to_json(entry.config)}});
  }
}

// A figure of the paper; 0: it has none.
std::string paper(double value, int digits) {
  return value == 0 ? "-" : fmt::format("{:.{}f}", value, digits);
}

void print_table() {
  fmt::print("{:<17} {:>6} {:>12} {:>8} {:>7} {:>9}  {}\n", "model", "pixels", "parameters",
             "GFLOPs", "top-1 %", "images/s", "what it is (recipe)");
  for (const config::ModelEntry& entry : config::models()) {
    fmt::print("{:<17} {:>6} {:>12} {:>8.3f} {:>7} {:>9}  {} ({})\n", entry.name,
               entry.config.image_size[0], with_commas(entry.parameters), entry.gflops,
               paper(entry.paper_top1, 1), paper(entry.paper_per_second, 0), entry.summary,
               entry.recipe);
  }
  fmt::print(
      "\nGFLOPs: 2 per multiply-add, for one image. top-1 (ImageNet) and images/s (one V100) are\n"
      "the paper's. 'qna recipes' lists recipes. Next: qna info MODEL\n");
}

double detector_gflops(const config::DetectorEntry& entry, std::array<int64_t, 2> size) {
  return config::total_cost(config::layer_costs(entry.config, size[0], size[1])).flops / 1e9;
}

void add_detectors_json(nlohmann::json& list, std::array<int64_t, 2> size) {
  for (const config::DetectorEntry& entry : config::detectors()) {
    list.push_back({{"name", entry.name},
                    {"kind", config::name_of(config::Kind::kDetector)},
                    {"summary", entry.summary},
                    {"parameters", entry.parameters},
                    {"size", size},
                    {"gflops", detector_gflops(entry, size)},
                    {"paper_ap", entry.paper_ap},
                    {"config", config::to_json(entry.config)}});
  }
}

void print_detectors(std::array<int64_t, 2> size) {
  fmt::print("{:<17} {:>12} {:>8} {:>6}  {}\n", "detector", "parameters", "GFLOPs", "AP %",
             "what it is");
  for (const config::DetectorEntry& entry : config::detectors()) {
    fmt::print("{:<17} {:>12} {:>8.1f} {:>6}  {}\n", entry.name, with_commas(entry.parameters),
               detector_gflops(entry, size), paper(entry.paper_ap, 1), entry.summary);
  }
  fmt::print("\nGFLOPs: for one image of {} x {} pixels. AP (COCO, 75 epochs) is the paper's.\n",
             size[0], size[1]);
}

config::Cost cost_of(const config::QnAViTConfig& config) {
  return config::total_cost(
      config::layer_costs(config, config.image_size[0], config.image_size[1]));
}

void print_ablations_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const config::Ablation& row : config::ablations()) {
    const config::Cost cost = cost_of(row.config);
    list.push_back({{"table", row.table},
                    {"row", row.row},
                    {"parameters", cost.parameters},
                    {"gmacs", cost.flops / 2e9},
                    {"paper_parameters_millions", row.paper_parameters},
                    {"paper_gmacs", row.paper_gmacs},
                    {"paper_top1", row.paper_top1},
                    {"note", config::ablation_note(row.table)},
                    {"config", config::to_json(row.config)}});
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
  std::string_view table;
  for (const config::Ablation& row : config::ablations()) {
    if (table != row.table) {
      if (!table.empty()) fmt::print("\n");
      table = row.table;
      fmt::print("{}\n{}", table, wrapped(config::ablation_note(table)));
      fmt::print("  {:<64} {:>8} {:>7} {:>7} {:>7} {:>7}\n", "", "M", "paper", "GMACs", "paper",
                 "top-1 %");
    }
    const config::Cost cost = cost_of(row.config);
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

void add_models(Command program) {
  struct ModelsArguments {
    bool json = false;
    bool ablations = false;
    bool detectors = false;
    std::string size;
  };
  Command verb = program.verb("models", "List the models and detectors");
  auto a = std::make_shared<ModelsArguments>();
  verb.flag("--json", a->json, "As JSON, with every model's configuration");
  Option ablations = verb.flag("--ablations", a->ablations,
                               "Every row of the paper's tables instead, ours beside its figures");
  Option detectors =
      verb.flag("--detectors", a->detectors, "The detectors alone").excludes(ablations);
  verb.option("--size", a->size,
              "Image side, or HEIGHTxWIDTH, for the detectors' GFLOPs [800x1066]")
      .needs(detectors);
  verb.footer(
      "Examples:\n  qna models\n  qna models --json\n  qna models --ablations\n"
      "  qna models --detectors --size 320");
  verb.callback([a] {
    const std::array<int64_t, 2> size =
        a->size.empty() ? config::usual_size(config::DetrConfig{}) : parse_size(a->size, "--size");
    if (a->ablations) {
      a->json ? print_ablations_json() : print_ablations();
    } else if (a->json) {
      nlohmann::json list = nlohmann::json::array();
      if (!a->detectors) add_models_json(list);
      add_detectors_json(list, size);
      fmt::print("{}\n", list.dump(2));
    } else {
      if (!a->detectors) {
        print_table();
        fmt::print("\n");
      }
      print_detectors(size);
    }
  });
}

}  // namespace qna::cli
