// Batches of a data set, made ahead by worker threads.
//
// What a batch holds is a function of the data set, the seed, the epoch and the batch's index. How
// many workers and processes there are and where a resumed epoch begins changes no bit of it.
#pragma once

#include <array>
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
#include <vector>

#include "qna/data/augment.h"
#include "qna/data/dataset.h"
#include "qna/data/mix.h"
#include "qna/data/picture_cache.h"
#include "qna/data/preprocess.h"

namespace qna::data {

struct LoaderOptions {
  int64_t batch = 64;  // pictures, of all processes together
  int workers = 2;     // threads
  int64_t ahead = 4;   // batches that are made or wait to be taken
  uint64_t seed = 0;
  bool shuffle = true;  // off: the data set's order, as evaluation wants it
  int rank = 0;         // of this process among `ranks`
  int ranks = 1;
  bool skip_broken = false;              // leave broken pictures out instead of throwing
  size_t cache_bytes = size_t{1} << 30;  // of decoded pictures
  int64_t classes = 0;                   // of the model; 0: as many as the data set has
  double label_smoothing = 0;            // this share of a target goes to all classes alike
};

struct Batch {
  int64_t index = 0;  // in the epoch
  int64_t count = 0;  // of pictures here; 0 where a small last batch does not reach this process
  int64_t total = 0;  // over all processes
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<float> pixels;      // [count, height, width, channels], normalised
  std::vector<float> targets;     // [count, classes], smoothed and mixed; each row sums to 1
  std::vector<int64_t> labels;    // [count]; -1: a broken picture, whose pixels and targets are 0
  std::vector<int64_t> pictures;  // [count], indices in the data set

  bool operator==(const Batch&) const = default;
};

class Loader {
 public:
  // With `augment`: training. Pictures are augmented, then normalised by the mean and std of
  // `preprocess`, then erased and mixed. Without: as in evaluation, by fit() and
  // to_floats(), and `mix` must be off.
  Loader(std::shared_ptr<const Dataset> dataset, const Preprocess& preprocess,
         const std::optional<Augment>& augment, const Mix& mix, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches() const;  // in an epoch; the last may be smaller
  int64_t classes() const { return options_.classes; }

  // Begins an epoch, or goes on with one at `first_batch`. What is left of another one is dropped.
  void start(int64_t epoch, int64_t first_batch = 0);

  // The next batch, nothing behind the last. Throws the qna::Error of a broken picture, which it
  // names, unless skip_broken; and again if called again.
  std::optional<Batch> next();

  // Gives a batch's memory back for those to come; saves the system from finding new pages.
  void recycle(Batch&& batch);

  // "name: reason" of the pictures that were left out until now, in order of the data set. Each
  // process knows its own.
  std::vector<std::string> broken() const;

 private:
  // A batch in the making. Only the worker that took a slot writes to it.
  struct Pending {
    Batch batch;
    int64_t taken = 0;  // slots that some worker took
    int64_t done = 0;   // slots that are finished
    bool ready = false;
    int64_t error_slot = 0;
    std::exception_ptr error = nullptr;  // of the first slot that has one
  };

  void check_options() const;
  bool is_mixed() const { return mix_.mixup > 0 || mix_.cutmix > 0; }
  std::array<int64_t, 2> find_size() const;
  void stop();
  void work();
  void make_batches(std::unique_lock<std::mutex>& lock);
  bool has_work() const;
  void open_batch();
  void fill(Batch& batch, int64_t slot);
  std::shared_ptr<const image::Image> fitted_or_decoded(int64_t picture);
  void finish(Batch& batch) const;

  const std::shared_ptr<const Dataset> dataset_;
  const Preprocess preprocess_;
  const std::optional<Augment> augment_;
  const Mix mix_;
  LoaderOptions options_;
  PictureCache cache_;

  // Set by start(), while no worker runs.
  std::array<int64_t, 2> size_ = {0, 0};  // height and width of all pictures of a batch
  int64_t epoch_ = 0;
  std::vector<int64_t> order_;  // picture by place in the epoch

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Pending>> pending_;  // in order; the first is the next to be given
  int64_t opened_ = 0;                            // batches that are or were pending
  bool is_running_ = false;                       // between start() and stop()
  std::exception_ptr failure_ = nullptr;          // of a worker, beside its pictures
  std::vector<Batch> spare_;
  std::map<int64_t, std::string> broken_;  // by picture
  std::vector<std::jthread> workers_;      // last: they end before the rest goes
};

}  // namespace qna::data
