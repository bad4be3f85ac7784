// How fast this machine trains by a recipe, by doing it for some seconds.
#pragma once

#include "qna/recipe/recipe.h"

namespace qna::train {

struct MeasuredSpeed {
  double train = 0;           // images per second, where everything learns
  double first = 0;           // the same in the first epoch, whose images are read from their files
  double evaluate = 0;        // images per second of the validation
  double first_evaluate = 0;  // of the first one, whose images are read too
};

// Real steps on the recipe's data for about so many seconds, and then a part of an evaluation, of
// the same images twice: they are read but once. One step before each is not counted. Leaves no
// trace. Throws as run_recipe() does.
MeasuredSpeed measure_speed(const Recipe& recipe, int threads, double seconds);

}  // namespace qna::train
