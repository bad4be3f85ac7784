// What a classifier says when its images move by some pixels.
#pragma once

#include <span>
#include <vector>

#include "qna/predict/evaluate.h"

namespace qna::predict {

// Means over the images and the four diagonal directions.
struct ShiftEvaluation {
  int64_t pixels = 0;
  double top1 = 0;  // percent
  double same = 0;  // percent of the answers that are those for the image in its place
};

// An image [height, width, channels] moved down and right (or, where negative, up and left). What
// comes in at the border is the image mirrored there: no new colour, no edge.
void shift_image(std::span<const float> image, int64_t height, int64_t width, int64_t channels,
                 int64_t down, int64_t right, std::span<float> out);

// One result per shift, in their order. Shifts must be at least 1 and smaller than the images. The
// loader is as in evaluate_classifier().
std::vector<ShiftEvaluation> evaluate_shifts(const engine::Model& model, data::Loader& loader,
                                             std::span<const int64_t> shifts,
                                             engine::Context& context,
                                             const EvaluationRun& run = {});

}  // namespace qna::predict
