// The learning rate over a run.
#pragma once

#include <cstdint>

namespace qna::train {

enum class ScheduleKind {
  kCosine,    // half a cosine from the full rate down to min_lr
  kConstant,  // the full rate
  kStep,      // the full rate, times step_factor from step_epoch on
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double warmup_epochs = 0;  // linearly from warmup_lr to the full rate, counted in the epochs
  double warmup_lr = 0;      // as a share of the full rate
  double min_lr = 0;         // as a share of the full rate
  double step_epoch = 0;
  double step_factor = 0.1;
};

// The share of the full rate at a step, 0 <= step < epochs * steps_per_epoch. The warm-up is the
// beginning of the same curve: a cosine goes on where it would be without one.
double learning_rate_factor(const Schedule& schedule, int64_t step, int64_t steps_per_epoch,
                            int64_t epochs);

}  // namespace qna::train
