// qna <verb>: a table of verbs, one file each. Training and benchmarks need LibTorch, so they are
// programs of their own, which lie beside this one.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/program.h"
#include "cli/verbs.h"
#include "cli/verbs_of_kind.h"
#include "qna/kernels/implementation.h"

namespace {

// For the list of verbs; main() has gone another way before they are parsed.
constexpr struct {
  const char* verb;
  const char* file;
  const char* summary;
} kOtherPrograms[] = {{"finetune", "qna-finetune",
                       "A network for your own pictures, no recipe needed (program qna-finetune)"},
                      {"train", "qna-train", "Train a model by a recipe (program qna-train)"},
                      {"bench", "qna-bench", "Measure speed and memory (program qna-bench)"}};

}  // namespace

int main(int argc, char** argv) {
  // "qna help VERB" is "qna VERB --help".
  std::vector<char*> asked(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    asked.erase(asked.begin() + 1);
    static char help[] = "--help";
    asked.push_back(help);
    argv = asked.data();
  }
  for (const auto& other : kOtherPrograms) {
    if (argc > 1 && std::string_view(argv[1]) == other.verb) {
      return qna::cli::become_program(other.file, argc, argv);
    }
  }

  qna::cli::Program program("qna",
                            "qna: learned queries for efficient local attention, on CPUs.\n"
                            "Run 'qna VERB --help' for a verb's options and examples.");
  program.version([] {
    return fmt::format("{}, {} kernels", qna::cli::version_text("qna"),
                       qna::kernels::chosen_implementation().name);
  });
  qna::cli::Command command = program.command();
  command.require_verb();

  qna::cli::add_models(command);
  qna::cli::add_info(command);
  qna::cli::add_import(command);
  qna::cli::add_export(command);
  command.verb(kOtherPrograms[0].verb, kOtherPrograms[0].summary);
  command.verb(kOtherPrograms[1].verb, kOtherPrograms[1].summary);
  qna::cli::add_sweep(command);
  qna::cli::add_eval(command);
  qna::cli::add_coco_eval(command);
  qna::cli::add_compare(command);
  qna::cli::add_data(command);
  qna::cli::add_predict(command);
  qna::cli::add_detect(command);
  qna::cli::add_reconstruct(command);
  qna::cli::add_features(command);
  qna::cli::add_attend(command);
  command.verb(kOtherPrograms[2].verb, kOtherPrograms[2].summary);
  qna::cli::add_kernels(command);
  qna::cli::add_recipes(command);
  qna::cli::add_completion(command);
  command.verb("help", "The options of a verb: qna help VERB");
  return program.run(argc, argv, qna::cli::describe_error);
}
