// Batches of images with boxes, padded to one size, made ahead by worker threads. As in loader.h,
// what a batch holds does not depend on the number of workers, nor on where an epoch is resumed.
// Processes divide a batch's images; each pads its own share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qna/data/batch_queue.h"
#include "qna/data/detection_augment.h"
#include "qna/data/detection_dataset.h"
#include "qna/data/image_cache.h"
#include "qna/data/loader_options.h"
#include "qna/data/preprocess.h"

namespace qna::data {

struct DetectionBatch {
  int64_t index = 0;   // in the epoch
  int64_t count = 0;   // of images here
  int64_t total = 0;   // over all processes
  int64_t height = 0;  // of the largest image here; 0 where there is none
  int64_t width = 0;
  std::vector<float> pixels;  // [count, height, width, 3], normalised; 0 outside the images
  std::vector<uint8_t> mask;  // [count, height, width]: 1 where there is an image
  std::vector<std::array<int64_t, 2>> sizes;      // height, width in the batch; 0, 0: broken
  std::vector<std::array<int64_t, 2>> originals;  // height, width of the file
  std::vector<std::vector<LabelledBox>> objects;  // in pixels of `sizes`
  std::vector<int64_t> images;                    // [count], indices in the data set

  bool operator==(const DetectionBatch&) const = default;
};

// A batch in the making: how large it is shows when all its images are there.
struct UnpaddedDetectionBatch : DetectionBatch {
  std::vector<std::shared_ptr<const image::Image>> slots;  // none: broken
};

class DetectionLoader : private BatchMaker<UnpaddedDetectionBatch> {
 public:
  // With `augment`: training. Without: as in evaluation, by fit() of `preprocess`, whose crop must
  // be 0, 0. The options' classes and label_smoothing are not used.
  DetectionLoader(std::shared_ptr<const DetectionDataset> dataset, const Preprocess& preprocess,
                  const std::optional<DetectionAugment>& augment, const LoaderOptions& options);

  // These as in Loader.
  int64_t batches() const { return queue_.batches(); }
  void start(int64_t epoch, int64_t first_batch = 0) { queue_.start(epoch, first_batch); }
  std::optional<DetectionBatch> next();
  void recycle(DetectionBatch&& batch);
  std::vector<std::string> broken() const { return queue_.broken(); }

 private:
  using Work = UnpaddedDetectionBatch;

  std::shared_ptr<const image::Image> fitted_or_decoded(int64_t index);
  void open(Work& batch) override;
  void fill(Work& batch, int64_t slot) override;
  void leave_out(Work& batch, int64_t slot) override;
  void finish(Work& batch) override;

  const std::shared_ptr<const DetectionDataset> dataset_;
  const Preprocess preprocess_;
  const std::optional<DetectionAugment> augment_;
  const LoaderOptions options_;
  ImageCache cache_;
  // Height and width of the files, by image. In an epoch only one worker asks for an image, so
  // none writes what another reads.
  std::vector<std::array<int64_t, 2>> originals_;
  BatchQueue<Work> queue_;  // last: its workers end before the rest goes
};

}  // namespace qna::data
