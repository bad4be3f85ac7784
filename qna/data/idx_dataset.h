// The file format of MNIST and its relatives: all images in one file, all labels in another.
#pragma once

#include "qna/data/dataset.h"

namespace qna::data {

// idx3-ubyte: 00 00 08 03, then the count, height and width, then the pixels.
// idx1-ubyte: 00 00 08 01, then the count, then the labels. Numbers are 32 bits, big end first.
class IdxDataset final : public Dataset {
 public:
  // The files may be compressed by gzip. They are read as a whole; the sizes that they claim are
  // checked before memory is taken. `class_names` empty: "0", "1" ... up to the largest label.
  // Otherwise there must be a name for each label.
  IdxDataset(std::string images, const std::string& labels,
             std::vector<std::string> class_names = {});

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t index) const override;
  std::string name(int64_t index) const override;  // the file and the place in it: file[index]
  image::Image read(int64_t index, int64_t channels) const override;
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  void check_index(int64_t index) const;

  std::string path_;
  int64_t height_ = 0;
  int64_t width_ = 0;
  std::vector<uint8_t> pixels_;  // [count, height, width]
  std::vector<uint8_t> labels_;
  std::vector<std::string> classes_;
};

// The ten names of Fashion-MNIST's labels, for `class_names`.
const std::vector<std::string>& fashion_mnist_classes();

}  // namespace qna::data
