#include "qna/data/loader.h"

#include <algorithm>

#include "qna/base/error.h"
#include "qna/base/random.h"

namespace qna::data {
namespace {

using image::Image;

// Floats of one batch; far from overflow and from any machine.
constexpr int64_t kMaxBatchFloats = int64_t{1} << 36;

std::shared_ptr<const Dataset> checked(std::shared_ptr<const Dataset> dataset) {
  check(dataset != nullptr, "Loader: dataset must be a data set, got none");
  check(dataset->size() >= 1, "Loader: dataset must have a picture, got none");
  return dataset;
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, const Preprocess& preprocess,
               const std::optional<Augment>& augment, const Mix& mix, const LoaderOptions& options,
               std::shared_ptr<const TeacherTargets> teacher)
    : dataset_(checked(std::move(dataset))),
      preprocess_(preprocess),
      augment_(augment),
      mix_(mix),
      options_(options),
      teacher_(std::move(teacher)),
      cache_(options.cache_bytes),
      queue_(*this, "Loader", dataset_->size(), is_mixed(), options) {
  const int64_t used = static_cast<int64_t>(dataset_->classes().size());
  if (options_.classes == 0) options_.classes = used;
  check(options_.classes >= used,
        "Loader: classes must be at least those of the data set, {}, got {}", used,
        options_.classes);
  columns_ = options_.classes;
  if (teacher_) {
    columns_ += static_cast<int64_t>(teacher_->classes().size()) + teacher_->features();
  }
  check_options();
}

void Loader::check_options() const {
  const LoaderOptions& o = options_;
  check_loader_options(o, "Loader");
  check(o.classes >= 1 && o.classes <= 1 << 24, "Loader: classes must be in [1, {}], got {}",
        1 << 24, o.classes);
  check(o.label_smoothing >= 0 && o.label_smoothing < 1,
        "Loader: label_smoothing must be at least 0 and below 1, got {}", o.label_smoothing);
  check(o.temperature > 0 && o.temperature <= 100,
        "Loader: temperature must be above 0 and at most 100, got {}", o.temperature);
  check(!teacher_ || augment_, "Loader: a teacher must come with augment, got none");
  check_preprocess(preprocess_, "Loader");
  check_mix(mix_, "Loader");
  if (augment_) {
    check_augment(*augment_, "Loader");
  } else {
    check(!is_mixed(), "Loader: mix must be off for evaluation, got mixup {} and cutmix {}",
          mix_.mixup, mix_.cutmix);
  }
  for (int64_t i = 0; i < dataset_->size(); ++i) {
    const int64_t label = dataset_->label(i);
    check(label >= 0 && label < o.classes, "Loader: the label of {} must be in [0, {}), got {}",
          dataset_->name(i), o.classes, label);
    check(!teacher_ || !teacher_->places(dataset_->name(i)).empty(),
          "Loader: the teacher must have seen all pictures, but not {}", dataset_->name(i));
  }
}

// Without a crop the size is that of the first image, and all others must have it too.
std::array<int64_t, 2> Loader::find_size() const {
  if (augment_) return augment_->size;
  if (preprocess_.crop[0] != 0) return preprocess_.crop;
  std::string reason;
  for (int64_t i = 0; i < dataset_->size(); ++i) {
    try {
      return guarded(*dataset_, i, [&] {
        const Image image = dataset_->read(i, preprocess_.channels());
        return output_size({image.height, image.width}, preprocess_);
      });
    } catch (const BrokenImage& error) {
      if (!options_.skip_broken) throw;
      if (reason.empty()) reason = error.what();
    }
  }
  fail("Loader: no picture of the data set can be read; the first: {}", reason);
}

void Loader::start(int64_t epoch, int64_t first_batch) {
  if (size_[0] == 0) {
    const std::array<int64_t, 2> size = find_size();
    check(size[0] * size[1] <= kMaxBatchFloats / preprocess_.channels() / options_.batch,
          "Loader: a batch must have at most {} numbers, got {} pictures of {} x {}",
          kMaxBatchFloats, options_.batch, size[0], size[1]);
    size_ = size;
  }
  queue_.start(epoch, first_batch);
}

void Loader::open(Batch& batch) {
  batch.height = size_[0];
  batch.width = size_[1];
  batch.channels = preprocess_.channels();
  batch.pixels.resize(batch.count * batch.height * batch.width * batch.channels);
  batch.targets.resize(batch.count * columns_);
  batch.labels.resize(batch.count);
}

// Decoded, and for evaluation fitted too, because there it is always the same and smaller.
std::shared_ptr<const Image> Loader::fitted_or_decoded(int64_t index) {
  return cache_.find_or_make(index, [&] {
    return guarded(*dataset_, index, [&] {
      Image image = dataset_->read(index, preprocess_.channels());
      return augment_ ? std::move(image) : fit(image, preprocess_);
    });
  });
}

// With a teacher, also what it says of this view, in the columns behind the classes.
Image Loader::augmented(const Image& image, int64_t index, Random& random, float* targets) {
  if (!teacher_) return augment(image, *augment_, random);
  const std::string name = dataset_->name(index);
  const std::vector<TeacherTargets::Place>& places = teacher_->places(name);
  const TeacherTargets::Place& place = places[random.below(static_cast<int64_t>(places.size()))];
  const View view = teacher_->view(place, image, name);
  float* probabilities = targets + options_.classes;
  teacher_->probabilities(place, options_.temperature, probabilities);
  if (teacher_->features() > 0) {
    teacher_->features(place, probabilities + teacher_->classes().size());
  }
  return augment(image, *augment_, random, &view);
}

void Loader::fill(Batch& batch, int64_t slot) {
  const int64_t index = batch.images[slot];
  float* pixels = batch.pixels.data() + slot * batch.height * batch.width * batch.channels;
  float* targets = batch.targets.data() + slot * columns_;
  Random random(options_.seed, static_cast<uint64_t>(queue_.epoch()), static_cast<uint64_t>(index),
                kAugment);
  std::shared_ptr<const Image> image = fitted_or_decoded(index);
  if (augment_) {
    image = std::make_shared<const Image>(
        guarded(*dataset_, index, [&] { return augmented(*image, index, random, targets); }));
  }
  check(image->height == batch.height && image->width == batch.width,
        "{}: its size, {} x {}, is not that of the first picture, {} x {} (height x width); set "
        "crop to one size for all",
        dataset_->name(index), image->height, image->width, batch.height, batch.width);
  to_floats(*image, preprocess_, pixels);
  if (augment_ && augment_->erase > 0) {
    erase(pixels, batch.height, batch.width, batch.channels, augment_->erase, random);
  }
  const double rest = options_.label_smoothing / static_cast<double>(options_.classes);
  batch.labels[slot] = dataset_->label(index);
  std::fill_n(targets, options_.classes, static_cast<float>(rest));
  targets[batch.labels[slot]] = static_cast<float>(1 - options_.label_smoothing + rest);
}

void Loader::leave_out(Batch& batch, int64_t slot) {
  const int64_t floats = batch.height * batch.width * batch.channels;
  batch.labels[slot] = -1;
  std::fill_n(batch.pixels.data() + slot * floats, floats, 0.0f);
  std::fill_n(batch.targets.data() + slot * columns_, columns_, 0.0f);
}

void Loader::finish(Batch& batch) {
  if (!is_mixed()) return;
  const int64_t floats = batch.height * batch.width * batch.channels;
  const auto copy = [&](int64_t to, int64_t from) {
    std::copy_n(batch.pixels.data() + from * floats, floats, batch.pixels.data() + to * floats);
    std::copy_n(batch.targets.data() + from * columns_, columns_,
                batch.targets.data() + to * columns_);
  };
  // The neighbour of a broken image is mixed with itself: it must not fade to nothing.
  for (int64_t i = 0; i < batch.count; ++i) {
    const int64_t neighbour = i ^ 1;
    if (batch.labels[i] < 0 && neighbour < batch.count && batch.labels[neighbour] >= 0) {
      copy(i, neighbour);
    }
  }
  Random random(options_.seed, static_cast<uint64_t>(queue_.epoch()),
                static_cast<uint64_t>(batch.index), kMix);
  mix(batch.pixels.data(), batch.targets.data(), batch.count, batch.height, batch.width,
      batch.channels, columns_, mix_, random);
  for (int64_t i = 0; i < batch.count; ++i) {
    if (batch.labels[i] < 0) leave_out(batch, i);
  }
}

}  // namespace qna::data
