// A folder of images whose classes a list beside it names, as Tiny-ImageNet's val has it.
#pragma once

#include "qna/data/dataset.h"

namespace qna::data {

// The list that makes such a data set of a folder; the images lie in `images` beside it.
inline constexpr const char* kListName = "val_annotations.txt";

// A line of the list is "<file> <class> ...", parted by tabs or spaces; what follows is not read.
// The order is that of the labels, then of the file names.
class ListedDataset final : public Dataset {
 public:
  // folder/val_annotations.txt and folder/images. `class_names` as in class_list() of
  // class_folders.h. Throws qna::Error for a line without a class, a file that is listed twice or
  // is no image, and an empty list. No image is opened yet.
  explicit ListedDataset(std::string folder, std::vector<std::string> class_names = {});

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  int64_t label(int64_t index) const override { return entry(index).label; }
  std::string name(int64_t index) const override;  // its path
  image::Image read(int64_t index, int64_t channels) const override;
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  struct Entry {
    int64_t label;
    std::string file;
    auto operator<=>(const Entry&) const = default;
  };
  const Entry& entry(int64_t index) const;

  std::string folder_;
  std::vector<std::string> classes_;
  std::vector<Entry> entries_;
};

}  // namespace qna::data
