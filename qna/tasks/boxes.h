// Boxes as tensors [..., 4], in one of two forms: by centre x, centre y, width and height, or by
// their corners left, top, right and bottom.
#pragma once

#include <torch/types.h>

namespace qna::tasks {

torch::Tensor corners_of(const torch::Tensor& centre_boxes);
torch::Tensor centres_of(const torch::Tensor& corner_boxes);

// The following take corners and broadcast: [N, 1, 4] and [M, 4] give all pairs, [N, M]. A box
// whose right lies left of its left counts as empty.

// Intersection over union, from 0 to 1; 0 where both boxes are empty.
torch::Tensor box_iou(const torch::Tensor& a, const torch::Tensor& b);
// "Generalized Intersection over Union" (CVPR 2019): less the part of the smallest box around both
// that neither covers. From -1 to 1, and with a gradient also where the boxes are apart.
torch::Tensor generalized_iou(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace qna::tasks
