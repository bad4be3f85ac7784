#include "qna/data/loader.h"

#include <algorithm>
#include <new>

#include "qna/base/error.h"
#include "qna/data/order.h"
#include "qna/data/random.h"

namespace qna::data {
namespace {

using image::Image;

// Floats of one batch; far from overflow and from any machine.
constexpr int64_t kMaxBatchFloats = int64_t{1} << 36;

// A picture that cannot be used. Mistakes that concern all pictures are plain qna::Error.
class BrokenPicture : public Error {
 public:
  using Error::Error;
};

// The message with the name of the picture, which most have already.
std::string with_name(const std::string& message, const std::string& name) {
  return message.find(name) == std::string::npos ? name + ": " + message : message;
}

// The result of `make`, which reads or changes a picture.
template <typename Make>
auto guarded(const Dataset& dataset, int64_t picture, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw BrokenPicture(with_name(error.what(), dataset.name(picture)));
  } catch (const std::bad_alloc&) {
    throw BrokenPicture(dataset.name(picture) + ": not enough memory for this picture");
  }
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, const Preprocess& preprocess,
               const std::optional<Augment>& augment, const Mix& mix, const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      preprocess_(preprocess),
      augment_(augment),
      mix_(mix),
      options_(options),
      cache_(options.cache_bytes) {
  check(dataset_ != nullptr, "Loader: dataset must be a data set, got none");
  check(dataset_->size() >= 1, "Loader: dataset must have a picture, got none");
  const int64_t used = static_cast<int64_t>(dataset_->classes().size());
  if (options_.classes == 0) options_.classes = used;
  check(options_.classes >= used,
        "Loader: classes must be at least those of the data set, {}, got {}", used,
        options_.classes);
  check_options();
}

Loader::~Loader() { stop(); }

void Loader::check_options() const {
  const LoaderOptions& o = options_;
  check(o.batch >= 1 && o.batch <= 1 << 20, "Loader: batch must be in [1, {}], got {}", 1 << 20,
        o.batch);
  check(o.workers >= 1 && o.workers <= 1024, "Loader: workers must be in [1, 1024], got {}",
        o.workers);
  check(o.ahead >= 1, "Loader: ahead must be at least 1, got {}", o.ahead);
  check(o.ranks >= 1, "Loader: ranks must be at least 1, got {}", o.ranks);
  check(o.rank >= 0 && o.rank < o.ranks, "Loader: rank must be in [0, {}), got {}", o.ranks,
        o.rank);
  check(o.classes >= 1 && o.classes <= 1 << 24, "Loader: classes must be in [1, {}], got {}",
        1 << 24, o.classes);
  check(o.label_smoothing >= 0 && o.label_smoothing < 1,
        "Loader: label_smoothing must be at least 0 and below 1, got {}", o.label_smoothing);
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
  }
}

int64_t Loader::batches() const { return (dataset_->size() + options_.batch - 1) / options_.batch; }

// Without a crop the size is that of the first picture, and all others must have it too.
std::array<int64_t, 2> Loader::find_size() const {
  if (augment_) return augment_->size;
  if (preprocess_.crop[0] != 0) return preprocess_.crop;
  std::string reason;
  for (int64_t i = 0; i < dataset_->size(); ++i) {
    try {
      return guarded(*dataset_, i, [&] {
        const Image picture = dataset_->read(i, preprocess_.channels());
        return output_size({picture.height, picture.width}, preprocess_);
      });
    } catch (const BrokenPicture& error) {
      if (!options_.skip_broken) throw;
      if (reason.empty()) reason = error.what();
    }
  }
  fail("Loader: no picture of the data set can be read; the first: {}", reason);
}

void Loader::start(int64_t epoch, int64_t first_batch) {
  check(epoch >= 0, "Loader: epoch must be at least 0, got {}", epoch);
  check(first_batch >= 0 && first_batch <= batches(),
        "Loader: first_batch must be in [0, {}], got {}", batches(), first_batch);
  stop();
  if (size_[0] == 0) {
    const std::array<int64_t, 2> size = find_size();
    check(size[0] * size[1] <= kMaxBatchFloats / preprocess_.channels() / options_.batch,
          "Loader: a batch must have at most {} numbers, got {} pictures of {} x {}",
          kMaxBatchFloats, options_.batch, size[0], size[1]);
    size_ = size;
  }
  if (options_.shuffle) {
    Random random(options_.seed, static_cast<uint64_t>(epoch), 0, kOrder);
    order_ = permutation(dataset_->size(), random);
  } else if (order_.empty()) {
    order_.resize(dataset_->size());
    for (int64_t i = 0; i < dataset_->size(); ++i) order_[i] = i;
  }
  epoch_ = epoch;
  opened_ = first_batch;
  is_running_ = true;
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

void Loader::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_running_ = false;
  }
  changed_.notify_all();
  workers_.clear();  // joins them; each ends the one picture that it is at
  pending_.clear();
  failure_ = nullptr;
}

// A batch is begun only when all slots of the one before are taken, so only the last has any.
bool Loader::has_work() const {
  const bool has_slots = !pending_.empty() && pending_.back()->taken < pending_.back()->batch.count;
  return has_slots ||
         (opened_ < batches() && static_cast<int64_t>(pending_.size()) < options_.ahead);
}

void Loader::open_batch() {
  auto pending = std::make_unique<Pending>();
  Batch& batch = pending->batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  const int64_t first = opened_ * options_.batch;
  batch.index = opened_;
  batch.total = std::min(options_.batch, dataset_->size() - first);
  const Share share = share_of(batch.total, options_.rank, options_.ranks, is_mixed());
  batch.count = share.end - share.first;
  batch.height = size_[0];
  batch.width = size_[1];
  batch.channels = preprocess_.channels();
  batch.pixels.resize(batch.count * batch.height * batch.width * batch.channels);
  batch.targets.resize(batch.count * options_.classes);
  batch.labels.resize(batch.count);
  batch.pictures.assign(order_.begin() + first + share.first, order_.begin() + first + share.end);
  pending->ready = batch.count == 0;
  pending_.push_back(std::move(pending));
  ++opened_;
  changed_.notify_all();
}

void Loader::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  try {
    make_batches(lock);
  } catch (...) {  // such as no memory for a batch
    if (!lock.owns_lock()) lock.lock();
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void Loader::make_batches(std::unique_lock<std::mutex>& lock) {
  while (true) {
    changed_.wait(lock, [&] { return !is_running_ || has_work() || opened_ == batches(); });
    if (!is_running_ || !has_work()) return;
    if (pending_.empty() || pending_.back()->taken == pending_.back()->batch.count) {
      open_batch();
      continue;
    }
    Pending& pending = *pending_.back();
    const int64_t slot = pending.taken++;
    lock.unlock();

    std::exception_ptr error = nullptr;
    try {
      fill(pending.batch, slot);
    } catch (...) {
      error = std::current_exception();
    }

    lock.lock();
    if (error && (!pending.error || slot < pending.error_slot)) {
      pending.error = error;
      pending.error_slot = slot;
    }
    if (++pending.done < pending.batch.count) continue;
    lock.unlock();
    if (!pending.error) finish(pending.batch);
    lock.lock();
    pending.ready = true;
    changed_.notify_all();
  }
}

// Decoded, and for evaluation fitted too, because there it is always the same and smaller.
std::shared_ptr<const Image> Loader::fitted_or_decoded(int64_t picture) {
  if (auto cached = cache_.find(picture)) return cached;
  auto made = std::make_shared<const Image>(guarded(*dataset_, picture, [&] {
    Image image = dataset_->read(picture, preprocess_.channels());
    return augment_ ? std::move(image) : fit(image, preprocess_);
  }));
  cache_.put(picture, made);
  return made;
}

void Loader::fill(Batch& batch, int64_t slot) {
  const int64_t picture = batch.pictures[slot];
  const int64_t floats = batch.height * batch.width * batch.channels;
  float* pixels = batch.pixels.data() + slot * floats;
  float* targets = batch.targets.data() + slot * options_.classes;
  try {
    Random random(options_.seed, static_cast<uint64_t>(epoch_), static_cast<uint64_t>(picture),
                  kAugment);
    std::shared_ptr<const Image> image = fitted_or_decoded(picture);
    if (augment_) {
      image = std::make_shared<const Image>(
          guarded(*dataset_, picture, [&] { return augment(*image, *augment_, random); }));
    }
    check(image->height == batch.height && image->width == batch.width,
          "{}: its size, {} x {}, is not that of the first picture, {} x {} (height x width); set "
          "crop to one size for all",
          dataset_->name(picture), image->height, image->width, batch.height, batch.width);
    to_floats(*image, preprocess_, pixels);
    if (augment_ && augment_->erase > 0) {
      erase(pixels, batch.height, batch.width, batch.channels, augment_->erase, random);
    }
    const double rest = options_.label_smoothing / static_cast<double>(options_.classes);
    batch.labels[slot] = dataset_->label(picture);
    std::fill_n(targets, options_.classes, static_cast<float>(rest));
    targets[batch.labels[slot]] = static_cast<float>(1 - options_.label_smoothing + rest);
  } catch (const BrokenPicture& error) {
    if (!options_.skip_broken) throw;
    batch.labels[slot] = -1;
    std::fill_n(pixels, floats, 0.0f);
    std::fill_n(targets, options_.classes, 0.0f);
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_.emplace(picture, error.what());
  }
}

void Loader::finish(Batch& batch) const {
  if (!is_mixed()) return;
  const int64_t floats = batch.height * batch.width * batch.channels;
  const auto copy = [&](int64_t to, int64_t from) {
    std::copy_n(batch.pixels.data() + from * floats, floats, batch.pixels.data() + to * floats);
    std::copy_n(batch.targets.data() + from * options_.classes, options_.classes,
                batch.targets.data() + to * options_.classes);
  };
  // The neighbour of a broken picture is mixed with itself: it must not fade to nothing.
  for (int64_t i = 0; i < batch.count; ++i) {
    const int64_t neighbour = i ^ 1;
    if (batch.labels[i] < 0 && neighbour < batch.count && batch.labels[neighbour] >= 0) {
      copy(i, neighbour);
    }
  }
  Random random(options_.seed, static_cast<uint64_t>(epoch_), static_cast<uint64_t>(batch.index),
                kMix);
  mix(batch.pixels.data(), batch.targets.data(), batch.count, batch.height, batch.width,
      batch.channels, options_.classes, mix_, random);
  for (int64_t i = 0; i < batch.count; ++i) {
    if (batch.labels[i] >= 0) continue;
    std::fill_n(batch.pixels.data() + i * floats, floats, 0.0f);
    std::fill_n(batch.targets.data() + i * options_.classes, options_.classes, 0.0f);
  }
}

std::optional<Batch> Loader::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  check(is_running_, "Loader: start() must be called before next()");
  if (pending_.empty() && opened_ == batches()) return std::nullopt;
  changed_.wait(lock, [&] { return failure_ || (!pending_.empty() && pending_.front()->ready); });
  if (failure_) std::rethrow_exception(failure_);
  if (pending_.front()->error) std::rethrow_exception(pending_.front()->error);
  Batch batch = std::move(pending_.front()->batch);
  pending_.pop_front();
  changed_.notify_all();
  return batch;
}

void Loader::recycle(Batch&& batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (static_cast<int64_t>(spare_.size()) < options_.ahead) spare_.push_back(std::move(batch));
}

std::vector<std::string> Loader::broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [picture, line] : broken_) lines.push_back(line);
  return lines;
}

}  // namespace qna::data
