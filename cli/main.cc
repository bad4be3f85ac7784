// qna <verb>: a table of verbs, one file each. Training and benchmarks need LibTorch, so they are
// programs of their own, which lie beside this one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "cli/program.h"
#include "cli/verbs.h"
#include "qna/kernels/implementation.h"

namespace {

// For the list of verbs; main() has gone another way before they are parsed.
constexpr struct {
  const char* verb;
  const char* file;
  const char* summary;
} kOtherPrograms[] = {{"train", "qna-train", "Train a model by a recipe (program qna-train)"},
                      {"bench", "qna-bench", "Measure speed and memory (program qna-bench)"}};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& other : kOtherPrograms) {
    if (argc > 1 && std::string_view(argv[1]) == other.verb) {
      return qna::cli::become_program(other.file, argc, argv);
    }
  }

  CLI::App app(
      "qna: learned queries for efficient local attention, on CPUs.\n"
      "Run 'qna VERB --help' for a verb's options and examples.");
  app.name("qna");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.set_version_flag("--version", [] {
    return fmt::format("{}, {} kernels", qna::cli::version_text("qna"),
                       qna::kernels::chosen_implementation().name);
  });

  qna::cli::add_models(app);
  qna::cli::add_info(app);
  qna::cli::add_import(app);
  qna::cli::add_export(app);
  app.add_subcommand(kOtherPrograms[0].verb, kOtherPrograms[0].summary);
  qna::cli::add_eval(app);
  qna::cli::add_coco_eval(app);
  qna::cli::add_compare(app);
  qna::cli::add_data(app);
  qna::cli::add_predict(app);
  qna::cli::add_detect(app);
  qna::cli::add_reconstruct(app);
  qna::cli::add_features(app);
  qna::cli::add_attend(app);
  app.add_subcommand(kOtherPrograms[1].verb, kOtherPrograms[1].summary);
  qna::cli::add_kernels(app);
  return qna::cli::run_program(app, argc, argv);
}
