#include "cli/training_run.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <memory>

#include "cli/progress.h"
#include "qna/base/error.h"
#include "qna/data/broken_image.h"
#include "qna/report/metric_text.h"

namespace qna::cli {
namespace {

std::atomic<bool> stop_asked = false;

void on_signal(int) {
  // A second signal ends at once, as without a handler.
  if (stop_asked.exchange(true)) std::_Exit(130);
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

}  // namespace

std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::optional<train::RunResult> run_and_show(const TrainingRun& run, const train::Rank& rank) {
  Screen screen(rank.rank == 0 && !run.quiet);
  const train::Watcher watcher{
      .start =
          [&](const train::RunInfo& info) {
            // Before, there is nothing to save, and a signal ends the program.
            std::signal(SIGINT, on_signal);
            std::signal(SIGTERM, on_signal);
            screen.start(info, run.recipe, run.options.folder);
          },
      .note = [&](const std::string& line) { screen.note(line); },
      .step = [&](const train::StepInfo& info) { screen.step(info); },
      .evaluation = [&](int64_t done, int64_t total) { screen.evaluation(done, total); },
      .epoch = [&](const train::EpochInfo& info) { screen.epoch(info); }};
  train::RunResult result = [&] {
    try {
      return train::run_recipe(run.recipe, run.options, rank, watcher, stop_asked);
    } catch (const data::BrokenImage& error) {
      fail("{}; --set data.broken=skip leaves such pictures out", error.what());
    }
  }();
  screen.end();
  if (!result.first) return std::nullopt;
  check(result.finished,
        "stopped in epoch {}, step {}; the run is saved, {} shows it. Go on with: {}",
        result.state.epoch + 1, result.state.step, result.report, run.go_on);
  for (const std::string& line : result.broken) fmt::print(stderr, "left out: {}\n", line);
  if (run.quiet) return result;
  fmt::print("\nbest   {} in epoch {}, after {} of training\n",
             report::metric_text(*result.state.best), result.state.best_epoch + 1,
             duration(result.state.seconds));
  fmt::print("files  {}\n       {}\n", result.best_file, result.report);
  return result;
}

}  // namespace qna::cli
