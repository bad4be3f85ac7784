// How fast this machine trains by a recipe, by doing it for some seconds.
#pragma once

#include "qna/recipe/recipe.h"
#include "qna/recipe/speed.h"

namespace qna::train {

// Real steps on the recipe's data for about so many seconds, and then a part of an evaluation, of
// the same images twice: they are read but once. One step before each is not counted. Leaves no
// trace. Throws as run_recipe() does.
Speed measure_speed(const Recipe& recipe, int threads, double seconds);

}  // namespace qna::train
