#include "qna/recipe/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qna::train {

double learning_rate_factor(const Schedule& s, int64_t step, int64_t steps_per_epoch,
                            int64_t epochs) {
  const double epoch = static_cast<double>(step) / static_cast<double>(steps_per_epoch);
  if (epoch < s.warmup_epochs) {
    // The first step has a rate above warmup_lr, the last one below the full rate.
    const double done = static_cast<double>(step + 1) /
                        (s.warmup_epochs * static_cast<double>(steps_per_epoch) + 1);
    return s.warmup_lr + (1 - s.warmup_lr) * std::min(done, 1.0);
  }
  switch (s.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kStep:
      return epoch < s.step_epoch ? 1 : s.step_factor;
    case ScheduleKind::kCosine:
      break;
  }
  const double done = epoch / static_cast<double>(epochs);
  return s.min_lr + (1 - s.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace qna::train
