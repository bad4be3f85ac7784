#include "qna/data/subset.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/base/fingerprint.h"
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

namespace {

class Relabelled final : public Dataset {
 public:
  Relabelled(std::shared_ptr<const Dataset> whole, std::vector<std::string> names)
      : whole_(std::move(whole)), names_(std::move(names)) {
    for (const std::string& name : whole_->classes()) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      places_.push_back(found == names_.end() ? -1 : found - names_.begin());
    }
  }
  int64_t size() const override { return whole_->size(); }
  int64_t label(int64_t index) const override { return places_[whole_->label(index)]; }
  std::string name(int64_t index) const override { return whole_->name(index); }
  image::Image read(int64_t index, int64_t channels) const override {
    return whole_->read(index, channels);
  }
  const std::vector<std::string>& classes() const override { return names_; }
  std::string left_out() const override { return whole_->left_out(); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<std::string> names_;
  std::vector<int64_t> places_;  // in names_, of the labels of whole_; -1: of no image
};

}  // namespace

std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> dataset,
                                          std::vector<std::string> names) {
  check(dataset != nullptr, "relabelled: there must be a data set, got none");
  for (const std::string& name : dataset->classes()) {
    check(std::find(names.begin(), names.end(), name) != names.end(),
          "relabelled: the class '{}' is not among the names", name);
  }
  return std::make_shared<Relabelled>(std::move(dataset), std::move(names));
}

std::shared_ptr<const Dataset> only_classes(std::shared_ptr<const Dataset> dataset,
                                            std::vector<std::string> names) {
  check(dataset != nullptr, "only_classes: there must be a data set, got none");
  const std::vector<std::string>& all = dataset->classes();
  std::vector<bool> is_kept(all.size());
  for (const std::string& name : names) {
    const auto found = std::find(all.begin(), all.end(), name);
    check(found != all.end(), "only_classes: the data has no class '{}'", name);
    is_kept[found - all.begin()] = true;
  }
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    if (is_kept[dataset->label(i)]) indices.push_back(i);
  }
  auto part = std::make_shared<Subset>(std::move(dataset), std::move(indices));
  return std::make_shared<Relabelled>(std::move(part), std::move(names));
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

std::string fingerprint(const Dataset& dataset) {
  Fingerprint names;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const std::string name = dataset.name(i);
    names.add(fmt::format("{}/{}\n", dataset.label(i), name.substr(name.rfind('/') + 1)));
  }
  return names.text();
}

}  // namespace qna::data
