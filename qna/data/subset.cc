#include "qna/data/subset.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/base/random.h"
#include "qna/data/order.h"

namespace qna::data {

Subset::Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices)
    : whole_(std::move(whole)), indices_(std::move(indices)) {
  check(whole_ != nullptr, "Subset: whole must be a data set, got none");
  for (const int64_t index : indices_) {
    check(index >= 0 && index < whole_->size(), "Subset: indices must be in [0, {}), got {}",
          whole_->size(), index);
  }
}

int64_t Subset::of_whole(int64_t index) const {
  check(index >= 0 && index < size(), "Subset: index must be in [0, {}), got {}", size(), index);
  return indices_[index];
}

Split split_dataset(std::shared_ptr<const Dataset> whole, double val_fraction, uint64_t seed) {
  check(whole != nullptr, "split_dataset: whole must be a data set, got none");
  check(val_fraction > 0 && val_fraction < 1,
        "split_dataset: val_fraction must be above 0 and below 1, got {}", val_fraction);
  std::vector<std::vector<int64_t>> of_class(whole->classes().size());
  for (int64_t i = 0; i < whole->size(); ++i) of_class.at(whole->label(i)).push_back(i);

  std::vector<int64_t> train;
  std::vector<int64_t> val;
  for (size_t label = 0; label < of_class.size(); ++label) {
    const std::vector<int64_t>& images = of_class[label];
    if (images.empty()) continue;
    const int64_t count = static_cast<int64_t>(images.size());
    const int64_t held_back =
        std::min<int64_t>(count - 1, std::llround(static_cast<double>(count) * val_fraction));
    Random random(seed, 0, label, kSplit);
    const std::vector<int64_t> order = permutation(count, random);
    for (int64_t i = 0; i < count; ++i) {
      (i < held_back ? val : train).push_back(images[order[i]]);
    }
  }
  check(!val.empty(), "split_dataset: a val_fraction of {} of {} pictures leaves none for val",
        val_fraction, whole->size());
  std::sort(train.begin(), train.end());
  std::sort(val.begin(), val.end());
  return {std::make_shared<Subset>(whole, std::move(train)),
          std::make_shared<Subset>(whole, std::move(val))};
}

}  // namespace qna::data
