#include "qna/tasks/detection_batch.h"

#include <algorithm>

namespace qna::tasks {
namespace {

using torch::Tensor;

BoxTargets targets_in(const std::vector<data::LabelledBox>& objects, std::array<int64_t, 2> size) {
  const auto count = static_cast<int64_t>(objects.size());
  BoxTargets targets{torch::empty({count}, torch::kLong), torch::empty({count, 4})};
  const auto height = static_cast<double>(size[0]), width = static_cast<double>(size[1]);
  auto labels = targets.labels.accessor<int64_t, 1>();
  auto boxes = targets.boxes.accessor<float, 2>();
  for (int64_t i = 0; i < count; ++i) {
    const auto& [left, top, right, bottom] = objects[i].box;
    labels[i] = objects[i].label;
    boxes[i][0] = static_cast<float>((left + right) / 2 / width);
    boxes[i][1] = static_cast<float>((top + bottom) / 2 / height);
    boxes[i][2] = static_cast<float>((right - left) / width);
    boxes[i][3] = static_cast<float>((bottom - top) / height);
  }
  return targets;
}

}  // namespace

std::vector<BoxTargets> targets_of(const data::DetectionBatch& batch,
                                   const std::vector<int64_t>& slots) {
  std::vector<BoxTargets> targets;
  for (const int64_t i : slots) targets.push_back(targets_in(batch.objects[i], batch.sizes[i]));
  return targets;
}

DetectorInput detector_input(const data::DetectionBatch& batch, int64_t first, int64_t last) {
  DetectorInput input;
  int64_t height = 0, width = 0;
  for (int64_t i = first; i < last; ++i) {
    const auto& size = batch.sizes[i];
    if (size[0] == 0) continue;  // broken
    input.slots.push_back(i);
    height = std::max(height, size[0]);
    width = std::max(width, size[1]);
  }
  if (input.slots.empty()) return input;
  input.targets = targets_of(batch, input.slots);
  const Tensor slots = torch::tensor(input.slots, torch::kLong);
  const bool whole = static_cast<int64_t>(input.slots.size()) == last - first;
  const auto part = [&](const auto& numbers, at::IntArrayRef sizes, torch::ScalarType type) {
    const Tensor all =
        torch::from_blob(const_cast<void*>(static_cast<const void*>(numbers.data())), sizes, type);
    const Tensor rows = whole ? all.slice(0, first, last) : all.index_select(0, slots);
    return rows.slice(1, 0, height).slice(2, 0, width);
  };
  input.images = part(batch.pixels, {batch.count, batch.height, batch.width, 3}, torch::kFloat);
  const bool equal = std::all_of(input.slots.begin(), input.slots.end(), [&](int64_t i) {
    return batch.sizes[i] == std::array<int64_t, 2>{height, width};
  });
  if (!equal) {
    input.mask =
        part(batch.mask, {batch.count, batch.height, batch.width}, torch::kByte).to(torch::kBool);
  }
  return input;
}

}  // namespace qna::tasks
