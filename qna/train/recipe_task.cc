#include "qna/train/recipe_task.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdlib>
#include <thread>

#include "qna/kinds/kind.h"
#include "qna/tasks/make_task.h"

namespace qna::train {

void set_threads(int wanted, const Rank& rank) {
  if (wanted > 0) {
    at::set_num_threads(wanted);
  } else if (rank.ranks > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    // Cores are shared among the processes of a machine, unless somebody decided already.
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    at::set_num_threads(std::max(1, cores / rank.local_ranks));
  }
}

std::unique_ptr<tasks::Task> make_recipe_task(const Recipe& recipe, const Processes& processes) {
  torch::manual_seed(static_cast<uint64_t>(recipe.seed));
  return tasks::make_task(kinds::row_of_task(recipe.task).kind, recipe.sections,
                          {.seed = recipe.seed,
                           .batch = recipe.batch,
                           .rank = processes.rank(),
                           .ranks = processes.count(),
                           .threads = at::get_num_threads(),
                           .sum = [&](torch::Tensor& tensor) { processes.sum(tensor); }});
}

}  // namespace qna::train
