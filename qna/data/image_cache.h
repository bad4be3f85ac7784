// Decoded images, kept for the next epoch as long as there is room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "qna/image/image.h"

namespace qna::data {

// First come, first kept: in an epoch every image is used once, so throwing out the oldest would
// throw out each before its next use. Safe from many threads; no lock is held for long.
class ImageCache {
 public:
  explicit ImageCache(size_t max_bytes) : left_(max_bytes) {}

  // The one that is kept, or else what `make` gives, which is then kept if there is room.
  template <typename Make>
  std::shared_ptr<const image::Image> find_or_make(int64_t index, Make&& make) {
    if (auto kept = find(index)) return kept;
    auto made = std::make_shared<const image::Image>(std::forward<Make>(make)());
    put(index, made);
    return made;
  }

 private:
  static constexpr size_t kEntryBytes = 160;  // of the map and the Image itself, about

  std::shared_ptr<const image::Image> find(int64_t index) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = images_.find(index);
    return found == images_.end() ? nullptr : found->second;
  }

  void put(int64_t index, std::shared_ptr<const image::Image> image) {
    const size_t bytes = image->pixels.capacity() + kEntryBytes;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > left_) return;
    if (images_.emplace(index, std::move(image)).second) left_ -= bytes;
  }

  mutable std::mutex mutex_;
  size_t left_;
  std::unordered_map<int64_t, std::shared_ptr<const image::Image>> images_;
};

}  // namespace qna::data
