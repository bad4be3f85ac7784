// What the image files of a data set are like, by opening them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qna/image/image.h"

namespace qna::finetune {

// Images of whatever data set.
struct ImageList {
  int64_t count = 0;
  std::function<image::Image(int64_t)> read;
};

struct ImageFacts {
  int64_t opened = 0;               // of the images: all, or as many as fit into some seconds
  std::vector<std::string> broken;  // what was said of those that cannot be read
  // The shorter sides of the others.
  int64_t smallest = 0;
  int64_t median = 0;
  int64_t largest = 0;
};

// Opens up to `most` images, chosen by chance but always the same ones; fewer where they are huge.
ImageFacts look_at(const ImageList& images, int64_t most = 1000);

struct Duplicates {
  int64_t count = 0;
  std::string one, other;  // an example
};

// Files of `val` whose content is also in `train`; where `val` is empty, files of `train` that are
// there more than once. Names that are no files are passed by.
Duplicates find_duplicates(const std::vector<std::string>& train,
                           const std::vector<std::string>& val);

}  // namespace qna::finetune
