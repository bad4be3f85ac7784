#include "qna/train/run_recipe.h"

#include <ATen/Parallel.h>

#include <filesystem>

#include "qna/train/recipe_task.h"
#include "qna/train/run_report.h"

namespace qna::train {

RunResult run_recipe(const Recipe& recipe, const RunOptions& options, const Rank& rank,
                     const Watcher& watcher, const std::atomic<bool>& stop) {
  set_threads(options.threads, rank);
  const Processes processes(rank, options.timeout);
  const std::unique_ptr<tasks::Task> task = make_recipe_task(recipe, processes);
  watcher.start({.about = task->describe(),
                 .epochs = recipe.epochs,
                 .steps_per_epoch = steps_of_epoch(recipe, *task),
                 .processes = processes.count(),
                 .threads = at::get_num_threads()});
  std::string report;
  const auto write_report = [&](const RunState& state, bool evaluated) {
    report = write_run_report(options.folder, *task, recipe, state, evaluated);
  };
  TrainResult trained = train(
      *task, recipe, processes,
      {.folder = options.folder, .resume = options.resume, .report = write_report}, watcher, stop);
  RunResult result{.finished = trained.finished,
                   .first = processes.is_first(),
                   .state = std::move(trained.state),
                   .best_file = (std::filesystem::path(options.folder) / kBestFile).string()};
  if (!result.first) return result;
  if (result.finished) write_report(result.state, /*evaluated=*/true);
  result.report = report;
  result.broken = task->broken();
  return result;
}

}  // namespace qna::train
