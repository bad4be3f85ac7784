#include "qna/data/detection_loader.h"

#include <algorithm>

#include "qna/base/error.h"

namespace qna::data {
namespace {

using image::Image;

// Floats of one batch; far from overflow and from any machine.
constexpr int64_t kMaxBatchFloats = int64_t{1} << 36;

std::shared_ptr<const DetectionDataset> checked(std::shared_ptr<const DetectionDataset> dataset) {
  check(dataset != nullptr, "DetectionLoader: dataset must be a data set, got none");
  return dataset;
}

std::array<int64_t, 2> size_of(const Image& image) { return {image.height, image.width}; }

}  // namespace

DetectionLoader::DetectionLoader(std::shared_ptr<const DetectionDataset> dataset,
                                 const Preprocess& preprocess,
                                 const std::optional<DetectionAugment>& augment,
                                 const LoaderOptions& options)
    : dataset_(checked(std::move(dataset))),
      preprocess_(preprocess),
      augment_(augment),
      options_(options),
      cache_(options.cache_bytes),
      originals_(dataset_->size()),
      queue_(*this, "DetectionLoader", dataset_->size(), /*paired=*/false, options) {
  check_loader_options(options, "DetectionLoader");
  check_preprocess(preprocess, "DetectionLoader");
  check(preprocess.channels() == 3, "DetectionLoader: mean must have 3 numbers, got {}",
        preprocess.channels());
  if (augment) {
    check_augment(*augment, "DetectionLoader");
  } else {
    check(preprocess.crop[0] == 0,
          "DetectionLoader: crop must be 0, 0, for objects at the edges count too, got {}, {}",
          preprocess.crop[0], preprocess.crop[1]);
  }
}

std::optional<DetectionBatch> DetectionLoader::next() {
  std::optional<Work> made = queue_.next();
  if (!made) return std::nullopt;
  return static_cast<DetectionBatch&&>(*made);  // without the slots, which are empty
}

void DetectionLoader::recycle(DetectionBatch&& batch) { queue_.recycle({std::move(batch), {}}); }

void DetectionLoader::open(Work& batch) {
  batch.height = 0;
  batch.width = 0;
  batch.pixels.clear();
  batch.mask.clear();
  batch.sizes.assign(batch.count, {0, 0});
  batch.originals.assign(batch.count, {0, 0});
  batch.objects.assign(batch.count, {});
  batch.slots.assign(batch.count, nullptr);
}

// Decoded, and for evaluation fitted too, because there it is always the same.
std::shared_ptr<const Image> DetectionLoader::fitted_or_decoded(int64_t index) {
  return cache_.find_or_make(index, [&] {
    return guarded(*dataset_, index, [&] {
      Image image = dataset_->read(index);
      originals_[index] = size_of(image);
      return augment_ ? std::move(image) : fit(image, preprocess_);
    });
  });
}

void DetectionLoader::fill(Work& batch, int64_t slot) {
  const int64_t index = batch.images[slot];
  std::shared_ptr<const Image> image = fitted_or_decoded(index);
  const std::array<int64_t, 2> original = originals_[index];
  std::vector<LabelledBox> objects = dataset_->objects(index, original[0], original[1]);
  if (augment_) {
    Random random(options_.seed, static_cast<uint64_t>(queue_.epoch()),
                  static_cast<uint64_t>(index), kAugment);
    DetectionSample made = guarded(*dataset_, index, [&] {
      return augment(DetectionSample{*image, std::move(objects)}, *augment_, random);
    });
    image = std::make_shared<const Image>(std::move(made.image));
    objects = std::move(made.objects);
  } else {
    objects = scaled(std::move(objects), original, size_of(*image));
  }
  batch.sizes[slot] = size_of(*image);
  batch.originals[slot] = original;
  batch.objects[slot] = std::move(objects);
  batch.slots[slot] = std::move(image);
}

void DetectionLoader::leave_out(Work& batch, int64_t slot) {
  batch.sizes[slot] = {0, 0};
  batch.originals[slot] = {0, 0};
  batch.objects[slot].clear();
  batch.slots[slot] = nullptr;
}

void DetectionLoader::finish(Work& batch) {
  for (const auto& [height, width] : batch.sizes) {
    batch.height = std::max(batch.height, height);
    batch.width = std::max(batch.width, width);
  }
  const int64_t area = batch.height * batch.width;
  check(area <= kMaxBatchFloats / 3 / batch.count,
        "DetectionLoader: a batch must have at most {} numbers, got {} pictures of {} x {}",
        kMaxBatchFloats, batch.count, batch.height, batch.width);
  batch.pixels.assign(batch.count * area * 3, 0.0f);
  batch.mask.assign(batch.count * area, 0);
  for (int64_t i = 0; i < batch.count; ++i) {
    if (batch.slots[i] == nullptr) continue;
    to_floats(*batch.slots[i], preprocess_, batch.pixels.data() + i * area * 3, batch.width * 3);
    for (int64_t y = 0; y < batch.sizes[i][0]; ++y) {
      std::fill_n(batch.mask.begin() + i * area + y * batch.width, batch.sizes[i][1], uint8_t{1});
    }
  }
  batch.slots.clear();
}

}  // namespace qna::data
