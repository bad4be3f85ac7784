// A folder with one folder of JPEG, PNG and WebP files per class: root/<class>/**/<image>.jpg
#pragma once

#include "qna/data/dataset.h"
#include "qna/data/image_name.h"

namespace qna::data {

// Folders below a class's folder belong to it. The order is that of the labels, then of the paths.
// Hidden files and folders (.name) and files with other endings are left out; left_out() tells.
class FolderDataset final : public Dataset {
 public:
  // `class_names` as in class_list() of class_folders.h. Throws qna::Error if the folder is
  // missing, has no class folders, or one of them has no image. No image is opened yet.
  explicit FolderDataset(std::string root, std::vector<std::string> class_names = {});

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  int64_t label(int64_t index) const override;
  std::string name(int64_t index) const override;  // its path
  image::Image read(int64_t index, int64_t channels) const override;
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string left_out() const override { return left_out_.line(); }

 private:
  struct Entry {
    int64_t label;
    std::string path;  // below root_
  };
  const Entry& entry(int64_t index) const;

  std::string root_;
  std::vector<std::string> classes_;
  std::vector<Entry> entries_;
  LeftOut left_out_;
};

}  // namespace qna::data
