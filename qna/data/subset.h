// A part of a data set, such as the images held back for validation.
#pragma once

#include "qna/data/dataset.h"

namespace qna::data {

class Subset final : public Dataset {
 public:
  // Image i is image indices[i] of `whole`.
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t label(int64_t index) const override { return whole_->label(of_whole(index)); }
  std::string name(int64_t index) const override { return whole_->name(of_whole(index)); }
  image::Image read(int64_t index, int64_t channels) const override {
    return whole_->read(of_whole(index), channels);
  }
  const std::vector<std::string>& classes() const override { return whole_->classes(); }
  std::string left_out() const override { return whole_->left_out(); }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  int64_t of_whole(int64_t index) const;

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> indices_;
};

// The same images with labels that are places in `names`, which has all of the data set's classes.
std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> dataset,
                                          std::vector<std::string> names);

// Only the images of the classes `names`, which are among the data set's; their labels are places
// in `names`.
std::shared_ptr<const Dataset> only_classes(std::shared_ptr<const Dataset> dataset,
                                            std::vector<std::string> names);

struct Split {
  std::shared_ptr<const Subset> train;
  std::shared_ptr<const Subset> val;
};

// Of the n images of each class, round(n * val_fraction) go to val, but at least one stays in
// train: the first ones of permutation(n, Random(seed, 0, label, kSplit)). The others are train.
// Both keep the order of the whole. Nothing but the labels, the fraction and the seed matters.
Split split_dataset(std::shared_ptr<const Dataset> whole, double val_fraction, uint64_t seed);

}  // namespace qna::data
