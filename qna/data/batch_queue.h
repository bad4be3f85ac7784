// Batches of any kind, made ahead by worker threads: the machine behind the loaders. It knows which
// images a batch has and who makes it when; what is made of them is the maker's.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "qna/base/error.h"
#include "qna/data/broken_image.h"
#include "qna/data/loader_options.h"
#include "qna/data/order.h"

namespace qna::data {

// A slot is the place of an image in a batch. Slots are filled by many threads at once, each by
// one; all else happens to a batch alone.
template <typename Batch>
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  // Gets the memory for batch.count images. Called under the lock of the queue, so not for long.
  virtual void open(Batch& batch) = 0;
  virtual void fill(Batch& batch, int64_t slot) = 0;
  virtual void leave_out(Batch& batch, int64_t slot) = 0;  // fill() threw BrokenImage
  virtual void finish(Batch& batch) = 0;  // all slots are filled; not for a batch without any
};

// `Batch` has index, count, total and images as in loader.h.
template <typename Batch>
class BatchQueue {
 public:
  // `where` begins messages. `paired` as in share_of(). The maker must outlive the queue.
  BatchQueue(BatchMaker<Batch>& maker, const char* where, int64_t images, bool paired,
             const LoaderOptions& options)
      : maker_(maker), where_(where), size_(images), paired_(paired), options_(options) {}
  ~BatchQueue() { stop(); }
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  int64_t batches() const { return (size_ + options_.batch - 1) / options_.batch; }
  int64_t epoch() const { return epoch_; }

  // These four as in Loader.
  void start(int64_t epoch, int64_t first_batch);
  std::optional<Batch> next();
  void recycle(Batch&& batch);
  std::vector<std::string> broken() const;

 private:
  // A batch in the making.
  struct Pending {
    Batch batch;
    int64_t taken = 0;  // slots that some worker took
    int64_t done = 0;   // slots that are finished
    bool ready = false;
    int64_t error_slot = 0;
    std::exception_ptr error = nullptr;  // of the first slot that has one
  };

  void set_order();
  void stop();
  void work();
  void make_batches(std::unique_lock<std::mutex>& lock);
  bool has_work() const;
  void open_batch();
  void fill(Batch& batch, int64_t slot);

  BatchMaker<Batch>& maker_;
  const char* const where_;
  const int64_t size_;  // of the data set
  const bool paired_;
  const LoaderOptions options_;

  // Set by start(), while no worker runs.
  int64_t epoch_ = 0;
  std::vector<int64_t> order_;  // image by place in the epoch

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Pending>> pending_;  // in order; the first is the next to be given
  int64_t opened_ = 0;                            // batches that are or were pending
  bool is_running_ = false;                       // between start() and stop()
  std::exception_ptr failure_ = nullptr;          // of a worker, beside its images
  std::vector<Batch> spare_;
  std::map<int64_t, std::string> broken_;  // by image
  std::vector<std::jthread> workers_;      // last: they end before the rest goes
};

template <typename Batch>
void BatchQueue<Batch>::start(int64_t epoch, int64_t first_batch) {
  check(epoch >= 0, "{}: epoch must be at least 0, got {}", where_, epoch);
  check(first_batch >= 0 && first_batch <= batches(), "{}: first_batch must be in [0, {}], got {}",
        where_, batches(), first_batch);
  stop();
  epoch_ = epoch;
  set_order();
  opened_ = first_batch;
  is_running_ = true;
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

template <typename Batch>
void BatchQueue<Batch>::set_order() {
  if (options_.shuffle) {
    Random random(options_.seed, static_cast<uint64_t>(epoch_), 0, kOrder);
    order_ = permutation(size_, random);
  } else if (order_.empty()) {
    order_.resize(size_);
    for (int64_t i = 0; i < size_; ++i) order_[i] = i;
  }
}

template <typename Batch>
void BatchQueue<Batch>::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_running_ = false;
  }
  changed_.notify_all();
  workers_.clear();  // joins them; each ends the one image that it is at
  pending_.clear();
  failure_ = nullptr;
}

// A batch is begun only when all slots of the one before are taken, so only the last has any.
template <typename Batch>
bool BatchQueue<Batch>::has_work() const {
  const bool has_slots = !pending_.empty() && pending_.back()->taken < pending_.back()->batch.count;
  return has_slots ||
         (opened_ < batches() && static_cast<int64_t>(pending_.size()) < options_.ahead);
}

template <typename Batch>
void BatchQueue<Batch>::open_batch() {
  auto pending = std::make_unique<Pending>();
  Batch& batch = pending->batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  const int64_t first = opened_ * options_.batch;
  batch.index = opened_;
  batch.total = std::min(options_.batch, size_ - first);
  const Share share = share_of(batch.total, options_.rank, options_.ranks, paired_);
  batch.count = share.end - share.first;
  batch.images.assign(order_.begin() + first + share.first, order_.begin() + first + share.end);
  maker_.open(batch);
  pending->ready = batch.count == 0;
  pending_.push_back(std::move(pending));
  ++opened_;
  changed_.notify_all();
}

template <typename Batch>
void BatchQueue<Batch>::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  try {
    make_batches(lock);
  } catch (...) {  // such as no memory for a batch
    if (!lock.owns_lock()) lock.lock();
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

template <typename Batch>
void BatchQueue<Batch>::make_batches(std::unique_lock<std::mutex>& lock) {
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
    if (!pending.error) maker_.finish(pending.batch);
    lock.lock();
    pending.ready = true;
    changed_.notify_all();
  }
}

template <typename Batch>
void BatchQueue<Batch>::fill(Batch& batch, int64_t slot) {
  try {
    maker_.fill(batch, slot);
  } catch (const BrokenImage& error) {
    if (!options_.skip_broken) throw;
    maker_.leave_out(batch, slot);
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_.emplace(batch.images[slot], error.what());
  }
}

template <typename Batch>
std::optional<Batch> BatchQueue<Batch>::next() {
  std::unique_lock<std::mutex> lock(mutex_);
  check(is_running_, "{}: start() must be called before next()", where_);
  if (pending_.empty() && opened_ == batches()) return std::nullopt;
  changed_.wait(lock, [&] { return failure_ || (!pending_.empty() && pending_.front()->ready); });
  if (failure_) std::rethrow_exception(failure_);
  if (pending_.front()->error) std::rethrow_exception(pending_.front()->error);
  Batch batch = std::move(pending_.front()->batch);
  pending_.pop_front();
  changed_.notify_all();
  return batch;
}

template <typename Batch>
void BatchQueue<Batch>::recycle(Batch&& batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (static_cast<int64_t>(spare_.size()) < options_.ahead) spare_.push_back(std::move(batch));
}

template <typename Batch>
std::vector<std::string> BatchQueue<Batch>::broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [image, line] : broken_) lines.push_back(line);
  return lines;
}

}  // namespace qna::data
