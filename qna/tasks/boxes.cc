#include "qna/tasks/boxes.h"

namespace qna::tasks {
namespace {

struct Overlap {
  torch::Tensor intersection;
  torch::Tensor both;  // union
};

// The area between a top left and a bottom right corner, [..., 2] each.
torch::Tensor area(const torch::Tensor& top_left, const torch::Tensor& bottom_right) {
  const torch::Tensor size = (bottom_right - top_left).clamp_min(0);
  return size.select(-1, 0) * size.select(-1, 1);
}

torch::Tensor top_left(const torch::Tensor& box) { return box.narrow(-1, 0, 2); }
torch::Tensor bottom_right(const torch::Tensor& box) { return box.narrow(-1, 2, 2); }

Overlap overlap(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor intersection = area(torch::maximum(top_left(a), top_left(b)),
                                          torch::minimum(bottom_right(a), bottom_right(b)));
  return {intersection,
          area(top_left(a), bottom_right(a)) + area(top_left(b), bottom_right(b)) - intersection};
}

// 0 / 0 is 0 here, also in the gradient.
torch::Tensor ratio(const torch::Tensor& part, const torch::Tensor& whole) {
  return part / whole.masked_fill(whole == 0, 1);
}

}  // namespace

torch::Tensor corners_of(const torch::Tensor& boxes) {
  const torch::Tensor centre = boxes.narrow(-1, 0, 2);
  const torch::Tensor half = boxes.narrow(-1, 2, 2) * 0.5;
  return torch::cat({centre - half, centre + half}, -1);
}

torch::Tensor centres_of(const torch::Tensor& boxes) {
  return torch::cat(
      {(top_left(boxes) + bottom_right(boxes)) * 0.5, bottom_right(boxes) - top_left(boxes)}, -1);
}

torch::Tensor box_iou(const torch::Tensor& a, const torch::Tensor& b) {
  const Overlap o = overlap(a, b);
  return ratio(o.intersection, o.both);
}

torch::Tensor generalized_iou(const torch::Tensor& a, const torch::Tensor& b) {
  const Overlap o = overlap(a, b);
  const torch::Tensor around = area(torch::minimum(top_left(a), top_left(b)),
                                    torch::maximum(bottom_right(a), bottom_right(b)));
  return ratio(o.intersection, o.both) - ratio(around - o.both, around);
}

}  // namespace qna::tasks
