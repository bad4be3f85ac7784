// How fast this machine trains by a recipe, by doing it for some seconds.
#pragma once

#include "qna/recipe/recipe.h"

namespace qna::train {

struct MeasuredSpeed {
  double train = 0;     // images per second, where everything learns
  double first = 0;     // the same in the first epoch, whose images are read from their files
  double evaluate = 0;  // images per second of the validation
};

// Real steps on the recipe's data for about so many seconds, the same images twice, and then a part
// of an evaluation; one step before each is not counted. Leaves no trace. Throws as run_recipe()
// does.
MeasuredSpeed measure_speed(const Recipe& recipe, int threads, double seconds);

}  // namespace qna::train
