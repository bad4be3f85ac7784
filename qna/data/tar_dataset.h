// Class folders inside a tar file, plain or compressed by gzip, bzip2, xz or zstd. Nothing is
// unpacked to disk.
#pragma once

#include <set>

#include "qna/data/dataset.h"
#include "qna/data/image_name.h"

namespace qna::data {

struct TarOptions {
  std::string folder = {};                    // that holds the class folders; empty: the top
  std::vector<std::string> class_names = {};  // as in class_list() of class_folders.h
  // The files of the images, still compressed, stay in memory. More bytes than these are an
  // error, whatever sizes the archive claims.
  int64_t max_bytes = int64_t{1} << 33;
};

// What FolderDataset would find in the unpacked archive, in the same order. Of two members of one
// name the last counts, as in unpacking.
class TarDataset final : public Dataset {
 public:
  explicit TarDataset(std::string path, TarOptions options = {});

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  int64_t label(int64_t index) const override;
  std::string name(int64_t index) const override;  // file.tar:<path inside>
  image::Image read(int64_t index, int64_t channels) const override;
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string left_out() const override { return left_out_.line(); }

 private:
  struct Entry {
    int64_t label;
    std::string name;  // below options.folder
    std::vector<uint8_t> bytes;
  };
  const Entry& entry(int64_t index) const;

  std::string path_;
  std::string folder_;
  std::vector<std::string> classes_;
  std::vector<Entry> entries_;
  LeftOut left_out_;
};

// All folders of the archive in which, or below which, there are images: "train", "train/cat".
std::set<std::string> tar_folders(const std::string& path);

}  // namespace qna::data
