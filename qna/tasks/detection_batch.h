// From a batch of images with boxes to what a detector and its loss take.
#pragma once

#include "qna/data/detection_loader.h"
#include "qna/tasks/set_loss.h"

namespace qna::tasks {

// The images of a batch that could be read, cut to the largest of them.
struct DetectorInput {
  std::vector<int64_t> slots;       // their places in the batch
  torch::Tensor images;             // [n, H, W, 3]; may view the batch, which must stay
  torch::Tensor mask;               // [n, H, W] bool; undefined where all images are as large
  std::vector<BoxTargets> targets;  // of each
};

// The objects of the images at these places.
std::vector<BoxTargets> targets_of(const data::DetectionBatch& batch,
                                   const std::vector<int64_t>& slots);

// Of the places first .. last - 1.
DetectorInput detector_input(const data::DetectionBatch& batch, int64_t first, int64_t last);

}  // namespace qna::tasks
