// Batches of a data set, made ahead by worker threads.
//
// What a batch holds is a function of the data set, the seed, the epoch and the batch's index. How
// many workers and processes there are and where a resumed epoch begins changes no bit of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qna/data/augment.h"
#include "qna/data/batch_queue.h"
#include "qna/data/dataset.h"
#include "qna/data/image_cache.h"
#include "qna/data/loader_options.h"
#include "qna/data/mix.h"
#include "qna/data/preprocess.h"
#include "qna/data/teacher_targets.h"

namespace qna::data {

struct Batch {
  int64_t index = 0;  // in the epoch
  int64_t count = 0;  // of images here; 0 where a small last batch does not reach this process
  int64_t total = 0;  // over all processes
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<float> pixels;  // [count, height, width, channels], normalised
  // [count, columns]: one for each class, smoothed and mixed, which sum to 1; with a teacher, then
  // the probabilities of its classes, then its features, mixed as well.
  std::vector<float> targets;
  std::vector<int64_t> labels;  // [count]; -1: a broken image, whose pixels and targets are 0
  std::vector<int64_t> images;  // [count], indices in the data set

  bool operator==(const Batch&) const = default;
};

class Loader : private BatchMaker<Batch> {
 public:
  // With `augment`: training. Images are augmented, then normalised by the mean and std of
  // `preprocess`, then erased and mixed. Without: as in evaluation, by fit() and
  // to_floats(), and `mix` must be off. teacher: all images were seen by it, and are shown in the
  // views that it saw; only with `augment`.
  Loader(std::shared_ptr<const Dataset> dataset, const Preprocess& preprocess,
         const std::optional<Augment>& augment, const Mix& mix, const LoaderOptions& options,
         std::shared_ptr<const TeacherTargets> teacher = nullptr);

  int64_t batches() const { return queue_.batches(); }  // in an epoch; the last may be smaller
  int64_t classes() const { return options_.classes; }
  int64_t columns() const { return columns_; }  // of the targets

  // Begins an epoch, or goes on with one at `first_batch`. What is left of another one is dropped.
  void start(int64_t epoch, int64_t first_batch = 0);

  // The next batch, nothing behind the last. Throws the qna::Error of a broken image, which it
  // names, unless skip_broken; and again if called again.
  std::optional<Batch> next() { return queue_.next(); }

  // Gives a batch's memory back for those to come; saves the system from finding new pages.
  void recycle(Batch&& batch) { queue_.recycle(std::move(batch)); }

  // "name: reason" of the images that were left out until now, in order of the data set. Each
  // process knows its own.
  std::vector<std::string> broken() const { return queue_.broken(); }

 private:
  void check_options() const;
  bool is_mixed() const { return mix_.mixup > 0 || mix_.cutmix > 0; }
  std::array<int64_t, 2> find_size() const;
  std::shared_ptr<const image::Image> fitted_or_decoded(int64_t index);
  image::Image augmented(const image::Image& image, int64_t index, Random& random, float* targets);

  void open(Batch& batch) override;
  void fill(Batch& batch, int64_t slot) override;
  void leave_out(Batch& batch, int64_t slot) override;
  void finish(Batch& batch) override;

  const std::shared_ptr<const Dataset> dataset_;
  const Preprocess preprocess_;
  const std::optional<Augment> augment_;
  const Mix mix_;
  LoaderOptions options_;
  const std::shared_ptr<const TeacherTargets> teacher_;
  int64_t columns_ = 0;
  ImageCache cache_;
  std::array<int64_t, 2> size_ = {0, 0};  // height and width of all images, set by start()
  BatchQueue<Batch> queue_;               // last: its workers end before the rest goes
};

}  // namespace qna::data
