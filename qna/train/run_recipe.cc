#include "qna/train/run_recipe.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "qna/kinds/kind.h"
#include "qna/tasks/make_task.h"
#include "qna/train/run_report.h"

namespace qna::train {
namespace {

// Cores are shared among the processes of a machine, unless somebody decided already.
void set_threads(int wanted, const Rank& rank) {
  if (wanted > 0) {
    at::set_num_threads(wanted);
  } else if (rank.ranks > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    at::set_num_threads(std::max(1, cores / rank.local_ranks));
  }
}

}  // namespace

RunResult run_recipe(const Recipe& recipe, const RunOptions& options, const Rank& rank,
                     const Watcher& watcher, const std::atomic<bool>& stop) {
  set_threads(options.threads, rank);
  const Processes processes(rank, options.timeout);
  torch::manual_seed(static_cast<uint64_t>(recipe.seed));
  const std::unique_ptr<tasks::Task> task =
      tasks::make_task(kinds::row_of_task(recipe.task).kind, recipe.sections,
                       {.seed = recipe.seed,
                        .batch = recipe.batch,
                        .rank = processes.rank(),
                        .ranks = processes.count(),
                        .threads = at::get_num_threads(),
                        .sum = [&](torch::Tensor& tensor) { processes.sum(tensor); }});
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
