#include "qna/data/image_dataset.h"

#include <numeric>

#include "qna/base/error.h"
#include "qna/data/image_stream.h"
#include "qna/data/subset.h"
#include "qna/image/read.h"

namespace qna::data {

ImageDataset::ImageDataset(const std::string& folder) : paths_(find_images({folder}, &left_out_)) {}

std::string ImageDataset::name(int64_t index) const {
  check(index >= 0 && index < size(), "ImageDataset: index must be in [0, {}), got {}", size(),
        index);
  return paths_[index];
}

image::Image ImageDataset::read(int64_t index, int64_t channels) const {
  return image::read_image(name(index), {.channels = channels});
}

HeldBack hold_back(std::shared_ptr<const Dataset> whole, int64_t count) {
  const int64_t size = whole->size();
  check(count >= 1 && count < size,
        "the pictures held back for validation must be at least 1 and fewer than all {}, got {}",
        size, count);
  std::vector<int64_t> train(size - count), val(count);
  std::iota(train.begin(), train.end(), 0);
  std::iota(val.begin(), val.end(), size - count);
  return {std::make_shared<Subset>(whole, std::move(train)),
          std::make_shared<Subset>(whole, std::move(val))};
}

}  // namespace qna::data
