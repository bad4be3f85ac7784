// The program qna-train: trains a model by a recipe. `qna train` starts it.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "cli/model_argument.h"
#include "cli/program.h"
#include "cli/torch_program.h"
#include "cli/training_run.h"
#include "cli/verbs_of_kind.h"
#include "qna/base/error.h"
#include "qna/kinds/kind.h"
#include "qna/train/local_processes.h"

namespace qna::cli {
namespace {

struct Arguments {
  std::string recipe;
  std::vector<std::string> settings;
  std::string out;
  bool resume = false;
  int processes = 0;  // 0: as the environment says
  int threads = 0;
  double timeout = 300;
  bool quiet = false;
};

std::string default_folder(const std::string& recipe) {
  return (std::filesystem::path("runs") / std::filesystem::path(recipe).stem()).string();
}

void print_next_commands(const std::string& task, const std::string& file) {
  const char* before = "\nNext: ";
  for (const char* command : verbs_of(kinds::row_of_task(task).kind).examples) {
    fmt::print("{}{}\n", before, fmt::format(fmt::runtime(command), quoted(file)));
    before = "      ";
  }
}

void run_process(const Arguments& a, const train::Recipe& recipe, const train::Rank& rank) {
  const std::string folder = a.out.empty() ? default_folder(a.recipe) : a.out;
  std::string settings;
  for (const std::string& setting : a.settings) {
    settings += fmt::format(" --set {}", quoted(setting));
  }
  const TrainingRun training{
      .recipe = recipe,
      .options = {.folder = folder,
                  .resume = a.resume,
                  .threads = a.threads,
                  .timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * a.timeout))},
      .quiet = a.quiet,
      .go_on = fmt::format("qna train {}{} --out {} --resume", quoted(a.recipe), settings,
                           quoted(folder))};
  const std::optional<train::RunResult> result = run_and_show(training, rank);
  if (result.has_value() && !a.quiet) print_next_commands(recipe.task, result->best_file);
}

void run(const Arguments& a) {
  const train::Recipe recipe = train::read_recipe(find_recipe(a.recipe), a.settings);
  const train::Rank rank = train::rank_from_environment();
  if (a.processes == 0) return run_process(a, recipe, rank);
  check(rank.ranks == 1, "--processes: this is already one of {} processes, by the environment",
        rank.ranks);
  train::run_local_processes(a.processes,
                             [&](const train::Rank& local) { run_process(a, recipe, local); });
}

void add_options(Command program) {
  auto a = std::make_shared<Arguments>();
  program
      .option("recipe", a->recipe, "Recipe (.toml), or the name of one: 'qna recipes' lists them")
      .required()
      .type_name("RECIPE");
  program
      .option("--set", a->settings,
              "Another value for a key of the recipe, such as epochs=10 or\n"
              "data.path=pictures/; may be given often")
      .one_value_each()
      .type_name("KEY=VALUE");
  program.option("-o,--out", a->out, "Folder of the run [runs/ and the recipe's name]")
      .type_name("FOLDER");
  program.flag("--resume", a->resume,
               "Go on with the run in the folder; start it if there is none");
  program.option("--processes", a->processes, "That share each batch, on this machine [1]")
      .range(1, 1024);
  program.option("--threads", a->threads, "That compute, per process [all cores]").range(1, 1024);
  program
      .option("--timeout", a->timeout,
              "Seconds after which a process that does not answer counts as dead [300]")
      .range(1.0, 1e6);
  program.flag("--quiet", a->quiet, "Print nothing but errors");
  program.footer(
      "The folder gets the recipe, checkpoints (last and best), a log (JSON lines and\n"
      "TensorBoard events) and report.html, anew after evaluations. Relative paths in a recipe\n"
      "are those of files beside it, if there are such. Ctrl-C saves and leaves; --resume goes\n"
      "on to the same weights, bit by bit, also after a crash; with --set epochs=N it makes a\n"
      "finished run longer. Processes on many machines: start the same command with torchrun,\n"
      "or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.\n\n"
      "Examples:\n"
      "  qna train fashion_mnist --processes 2\n"
      "  qna train imagenette --set data.path=imagenette2 --set epochs=20 -o mine\n"
      "  qna train imagenette --set data.path=imagenette2 --set epochs=20 -o mine --resume\n"
      "  torchrun --no-python --nproc-per-node 2 qna train fashion_mnist");
  program.callback([a] { run(*a); });
}

}  // namespace
}  // namespace qna::cli

int main(int argc, char** argv) {
  // As Python does, for whose processes c10d is written: writing to one that died is an error that
  // is told, not a silent end.
  std::signal(SIGPIPE, SIG_IGN);
  qna::cli::Program program(qna::cli::program_name(argv[0]), "Train a model by a recipe");
  program.version([] { return qna::cli::version_text("qna-train"); });
  qna::cli::add_options(program.command());
  return qna::cli::run_torch_program(program, argc, argv);
}
