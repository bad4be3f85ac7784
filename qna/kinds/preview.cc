#include "qna/kinds/preview.h"

#include <fmt/format.h>

#include <algorithm>

#include "qna/image/color.h"
#include "qna/image/resize.h"

namespace qna::kinds {

std::vector<int64_t> places(const PreviewOptions& options, int64_t size) {
  const int64_t count = std::min(options.images, size);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(i * size / count);
  return all;
}

image::Image to_cell(const image::Image& image) {
  constexpr int64_t kSide = 112;
  const int64_t zoom = std::max<int64_t>(1, kSide / std::max(image.height, image.width));
  return image::resize(image::to_channels(image, 3), zoom * image.height, zoom * image.width,
                       image::Filter::kBilinear);
}

void add_epochs(Preview& preview, const PreviewOptions& options, const train::Recipe& recipe,
                int64_t index, const std::function<image::Image(Random&)>& augment) {
  for (int64_t epoch = options.epoch; epoch < options.epoch + options.variants; ++epoch) {
    Random random(static_cast<uint64_t>(recipe.seed), static_cast<uint64_t>(epoch),
                  static_cast<uint64_t>(index), kAugment);
    preview.cells.push_back({augment(random), fmt::format("epoch {}", epoch + 1)});
  }
}

}  // namespace qna::kinds
