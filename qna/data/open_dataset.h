// A data set by its path, of whatever kind it is; docs/data.md shows the layouts.
#pragma once

#include "qna/data/dataset.h"

namespace qna::data {

struct DatasetOptions {
  // A folder of idx files (MNIST's format), a folder of class folders, or a tar file of them. A
  // split whose classes stand in a list is one too: listed_dataset.h.
  std::string path;
  // "train", "val", "test" or another name: a folder inside `path`, and of idx files those of
  // train or t10k. If there is only one of "val" and "test", it stands for both. Empty: the class
  // folders lie directly in `path`; of idx files, those of train.
  std::string split = {};
  // Above 0: this share of the training images, those in "train" or else directly in `path`, is
  // "val", and the rest is "train"; see split_dataset() of subset.h. "test" stays as it is.
  double val_fraction = 0;
  uint64_t split_seed = 0;
  // In order of the labels. Empty: the names of the folders, sorted, or "0", "1" ... of idx files.
  std::vector<std::string> class_names = {};
  // Above 0: only so many classes, spread evenly over the list: of n the classes i * n / keep. For
  // quick work on a large data set.
  int64_t keep_classes = 0;
};

// Throws qna::Error that names the path and says what was expected there.
std::shared_ptr<const Dataset> open_dataset(const DatasetOptions& options);

// Whether there is a split of this name at the path; "val" and "test" stand for each other.
bool has_split(const std::string& path, const std::string& split);

}  // namespace qna::data
