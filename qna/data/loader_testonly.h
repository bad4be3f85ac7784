// Shared by the loader's tests: a data set in memory.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/loader.h"
#include "tests/support/complaint.h"

namespace qna::data::testing {

// Images of noise, each another; some are broken.
class NoiseDataset final : public Dataset {
 public:
  explicit NoiseDataset(int64_t size, std::set<int64_t> broken = {}, bool one_size = true)
      : size_(size), broken_(std::move(broken)), one_size_(one_size) {}

  int64_t size() const override { return size_; }
  int64_t label(int64_t index) const override { return index % 3; }
  std::string name(int64_t index) const override { return fmt::format("noise[{}]", index); }
  image::Image read(int64_t index, int64_t channels) const override {
    ++reads;
    check(!broken_.contains(index), "{}: is broken", name(index));
    image::Image image =
        image::make_image(one_size_ ? 9 : 9 + index % 3, one_size_ ? 10 : 9 + index % 4, channels);
    uint32_t state = static_cast<uint32_t>(index * 7919 + 1);
    for (uint8_t& pixel : image.pixels) {
      state = state * 1664525u + 1013904223u;
      pixel = static_cast<uint8_t>(state >> 24);
    }
    return image;
  }
  const std::vector<std::string>& classes() const override { return classes_; }

  mutable std::atomic<int64_t> reads = 0;

 private:
  const int64_t size_;
  const std::set<int64_t> broken_;
  const bool one_size_;
  const std::vector<std::string> classes_ = {"a", "b", "c"};
};

inline std::shared_ptr<const NoiseDataset> noise(int64_t size, std::set<int64_t> broken = {},
                                                 bool one_size = true) {
  return std::make_shared<const NoiseDataset>(size, std::move(broken), one_size);
}

inline const Augment kAugmentAll = {
    .size = {8, 6}, .rand_augment = RandAugment{}, .color_jitter = 0.3, .erase = 0.5};
inline const Mix kMixBoth = {.mixup = 0.8, .cutmix = 1};

// All that is left of the epoch.
inline std::vector<Batch> drain(Loader& loader, bool recycle = false) {
  std::vector<Batch> batches;
  while (std::optional<Batch> batch = loader.next()) {
    batches.push_back(*batch);  // a copy, so that the memory of the first can go back
    if (recycle) loader.recycle(std::move(*batch));
  }
  return batches;
}

using qna::testing::complaint;
using qna::testing::contains;

}  // namespace qna::data::testing
