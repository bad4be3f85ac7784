#include "qna/train/speed.h"

#include <torch/types.h>

#include <chrono>

#include "qna/train/adamw.h"
#include "qna/train/recipe_task.h"

namespace qna::train {
namespace {

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Images per second of `steps` steps from the first on, or, where that is 0, of as many as fit into
// some seconds, whose number it sets.
double training_speed(tasks::Task& task, AdamW& optimizer, double seconds, int64_t& steps) {
  int64_t done = 0;
  const auto step = [&] {
    if (done % task.batches() == 0) task.start(done / task.batches(), 0);
    ++done;
    const int64_t images = task.next();
    optimizer.zero_grad();
    task.loss(0, 1).backward();
    optimizer.step(0);
    return images;
  };
  step();  // memory is taken, caches are filled
  const Clock clock;
  int64_t images = 0;
  do {
    images += step();
  } while (steps == 0 ? clock.seconds() < seconds : done <= steps);
  steps = done - 1;
  return static_cast<double>(images) / clock.seconds();
}

// Thrown to leave an evaluation that has told enough.
struct Enough {};

// The same of an evaluation and its batches.
double evaluation_speed(tasks::Task& task, const Recipe& recipe, double seconds, int64_t& batches) {
  task.model().eval();
  const Clock clock;
  int64_t done = 0;
  try {
    task.evaluate([&](int64_t now, int64_t) {
      done = now;
      if (batches == 0 ? clock.seconds() > seconds : done >= batches) throw Enough();
    });
  } catch (const Enough&) {
  }
  batches = done;
  return static_cast<double>(done * recipe.batch) / clock.seconds();
}

}  // namespace

Speed measure_speed(const Recipe& recipe, int threads, double seconds) {
  set_threads(threads, Rank{});
  const Processes alone(Rank{}, std::chrono::seconds(1));
  const std::unique_ptr<tasks::Task> task = make_recipe_task(recipe, alone);
  task->model().train();
  AdamW optimizer(task->model(), recipe.optimizer);
  int64_t steps = 0;
  const double first = training_speed(*task, optimizer, seconds / 2, steps);
  const double train = training_speed(*task, optimizer, seconds / 2, steps);
  int64_t batches = 0;
  const double first_evaluate = evaluation_speed(*task, recipe, seconds / 4, batches);
  return {.train = train,
          .first = first,
          .evaluate = evaluation_speed(*task, recipe, seconds / 4, batches),
          .first_evaluate = first_evaluate};
}

}  // namespace qna::train
