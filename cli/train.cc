// The program qna-train: trains a model by a recipe. `qna train` starts it.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>

#include "cli/model_argument.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/torch_program.h"
#include "cli/verbs_of_kind.h"
#include "qna/base/error.h"
#include "qna/data/broken_image.h"
#include "qna/kinds/kind.h"
#include "qna/report/metric_text.h"
#include "qna/train/local_processes.h"
#include "qna/train/run_recipe.h"

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

std::atomic<bool> stop_asked = false;

void on_signal(int) {
  // A second signal ends at once, as without a handler.
  if (stop_asked.exchange(true)) std::_Exit(130);
}

std::string default_folder(const std::string& recipe) {
  return (std::filesystem::path("runs") / std::filesystem::path(recipe).stem()).string();
}

// For a shell: as it is where that is safe.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string duration(double seconds) {
  return seconds < 120 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.1f} min", seconds / 60);
}

// A bar for the steps of the run; notes and the lines of epochs stand above it.
class Screen {
 public:
  explicit Screen(bool speaks) : speaks_(speaks) {}

  void start(const train::RunInfo& info, const train::Recipe& recipe, const std::string& folder) {
    steps_ = info.epochs * info.steps_per_epoch;
    if (!speaks_) return;
    for (const std::string& line : info.about) fmt::print("{}\n", line);
    fmt::print("run    {} epochs of {} steps, batch {}, {} process{} with {} thread{}\n",
               info.epochs, info.steps_per_epoch, recipe.batch, info.processes,
               info.processes == 1 ? "" : "es", info.threads, info.threads == 1 ? "" : "s");
    fmt::print("folder {}\n\n", folder);
    std::fflush(stdout);
  }

  void note(const std::string& line) {
    if (bar_) bar_->wipe();
    if (speaks_) fmt::print(stderr, "{}\n", line);
  }

  void step(const train::StepInfo& info) {
    if (!speaks_) return;
    // Steps of an earlier session say nothing of the time that is left.
    if (!bar_) {
      first_ = info.step - 1;
      bar_ = std::make_unique<Progress>(steps_ - first_);
    }
    done_ = info.step - first_;
    bar_->show(done_, fmt::format("epoch {}/{}, loss {:.4f}, {:.0f} images/s", info.epoch + 1,
                                  info.epochs, info.mean_loss, info.images_per_second));
  }

  void evaluation(int64_t done, int64_t total) {
    if (bar_) bar_->show(done_, fmt::format("validation, batch {}/{}", done, total));
  }

  void epoch(const train::EpochInfo& info) {
    if (!speaks_) return;
    if (bar_) bar_->wipe();
    std::string line = fmt::format("epoch {:3}/{}  train loss {:.4f}", info.epoch + 1, info.epochs,
                                   info.train_loss);
    for (const auto& [name, value] : info.metrics) {
      line += name == "loss" ? fmt::format("  val loss {:.4f}", value)
                             : fmt::format("  {} {}", name, report::metric_text(value));
    }
    fmt::print("{}  {}{}\n", line, duration(info.seconds), info.best ? "  best" : "");
    std::fflush(stdout);
  }

  void end() { bar_.reset(); }

 private:
  const bool speaks_;
  int64_t steps_ = 0;
  int64_t first_ = 0;  // steps of earlier sessions
  int64_t done_ = 0;   // steps of this one
  std::unique_ptr<Progress> bar_;
};

void print_next_commands(const std::string& task, const std::string& file) {
  const char* before = "\nNext: ";
  for (const char* command : verbs_of(kinds::row_of_task(task).kind).examples) {
    fmt::print("{}{}\n", before, fmt::format(fmt::runtime(command), quoted(file)));
    before = "      ";
  }
}

void run_process(const Arguments& a, const train::Recipe& recipe, const train::Rank& rank) {
  const train::RunOptions options{
      .folder = a.out.empty() ? default_folder(a.recipe) : a.out,
      .resume = a.resume,
      .threads = a.threads,
      .timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * a.timeout))};
  Screen screen(rank.rank == 0 && !a.quiet);
  const train::Watcher watcher{
      .start =
          [&](const train::RunInfo& info) {
            // Before, there is nothing to save, and a signal ends the program.
            std::signal(SIGINT, on_signal);
            std::signal(SIGTERM, on_signal);
            screen.start(info, recipe, options.folder);
          },
      .note = [&](const std::string& line) { screen.note(line); },
      .step = [&](const train::StepInfo& info) { screen.step(info); },
      .evaluation = [&](int64_t done, int64_t total) { screen.evaluation(done, total); },
      .epoch = [&](const train::EpochInfo& info) { screen.epoch(info); }};
  const train::RunResult result = [&] {
    try {
      return train::run_recipe(recipe, options, rank, watcher, stop_asked);
    } catch (const data::BrokenImage& error) {
      fail("{}; --set data.broken=skip leaves such pictures out", error.what());
    }
  }();
  screen.end();
  if (!result.first) return;
  if (!result.finished) {
    std::string settings;
    for (const std::string& setting : a.settings)
      settings += fmt::format(" --set {}", quoted(setting));
    fail(
        "stopped in epoch {}, step {}; the run is saved, {} shows it. Go on with: qna train {}{} "
        "--out {} --resume",
        result.state.epoch + 1, result.state.step, result.report, quoted(a.recipe), settings,
        quoted(options.folder));
  }
  for (const std::string& line : result.broken) fmt::print(stderr, "left out: {}\n", line);
  if (a.quiet) return;
  fmt::print("\nbest   {} in epoch {}, after {} of training\n",
             report::metric_text(*result.state.best), result.state.best_epoch + 1,
             duration(result.state.seconds));
  fmt::print("files  {}\n       {}\n", result.best_file, result.report);
  print_next_commands(recipe.task, result.best_file);
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
      "The folder gets the recipe, checkpoints (last and best), a log (JSON lines and TensorBoard\n"
      "events) and report.html, anew after evaluations. Relative paths in a recipe are those of "
      "files\n"
      "beside it, if there are such. --resume with --set epochs=N makes a finished run longer. "
      "Ctrl-C saves and leaves; --resume goes on to the same\n"
      "weights, bit by bit, also after a crash. Processes on many machines: start the same "
      "command\n"
      "with torchrun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.\n\n"
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
