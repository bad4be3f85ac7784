#include "qna/data/folder_dataset.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "qna/base/error.h"
#include "qna/data/class_folders.h"
#include "qna/data/image_name.h"
#include "qna/image/read.h"

namespace qna::data {
namespace {

namespace fs = std::filesystem;

// The class folders of `root`.
std::set<std::string> find_classes(const std::string& root) {
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  check(fs::exists(status),
        "{}: there is no such folder; give the folder that has one folder of pictures per class",
        root);
  check(fs::is_directory(status), "{}: this is not a folder", root);
  std::set<std::string> folders;
  bool has_images = false;
  fs::directory_iterator walk(root, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    const std::string name = walk->path().filename().string();
    if (is_hidden(name)) continue;
    std::error_code ignored;
    if (walk->is_directory(ignored)) {
      folders.insert(name);
    } else {
      has_images = has_images || has_image_ending(name);
    }
  }
  check(!error, "{}: cannot be read: {}", root, error.message());
  if (folders.empty()) fail_without_classes(root, has_images);
  return folders;
}

// The images of one class, as paths below `root`, sorted.
std::vector<std::string> find_class_images(const std::string& root, const std::string& class_name,
                                           LeftOut& left_out) {
  const fs::path folder = fs::path(root) / class_name;
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator walk(folder, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    const std::string name = walk->path().filename().string();
    std::error_code ignored;
    if (is_hidden(name)) {
      walk.disable_recursion_pending();
    } else if (walk->is_regular_file(ignored)) {
      const std::string path = walk->path().lexically_relative(root).string();
      if (has_image_ending(name)) {
        found.push_back(path);
      } else {
        left_out.add(path);
      }
    }
  }
  check(!error, "{}: cannot be read: {}", folder.string(), error.message());
  if (found.empty()) fail_empty_class(root, class_name, left_out);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

FolderDataset::FolderDataset(std::string root, std::vector<std::string> class_names)
    : root_(std::move(root)) {
  const std::set<std::string> folders = find_classes(root_);
  classes_ = class_list(folders, std::move(class_names), root_);
  for (size_t label = 0; label < classes_.size(); ++label) {
    if (!folders.contains(classes_[label])) continue;
    for (std::string& path : find_class_images(root_, classes_[label], left_out_)) {
      entries_.push_back({static_cast<int64_t>(label), std::move(path)});
    }
  }
}

const FolderDataset::Entry& FolderDataset::entry(int64_t index) const {
  check(index >= 0 && index < size(), "FolderDataset: index must be in [0, {}), got {}", size(),
        index);
  return entries_[index];
}

int64_t FolderDataset::label(int64_t index) const { return entry(index).label; }

std::string FolderDataset::name(int64_t index) const {
  return (fs::path(root_) / entry(index).path).string();
}

image::Image FolderDataset::read(int64_t index, int64_t channels) const {
  return image::read_image(name(index), {.channels = channels});
}

}  // namespace qna::data
