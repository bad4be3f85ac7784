// How fast a machine runs a recipe: measured by train/speed.h, planned with by finetune/plan.h.
#pragma once

namespace qna::train {

// In images per second.
struct Speed {
  double train = 0;  // where everything learns
  double first = 0;  // of training in the first epoch, which reads the images; 0: as later
  double evaluate = 0;
  double first_evaluate = 0;  // of the first evaluation, which reads them too; 0: as later
};

}  // namespace qna::train
