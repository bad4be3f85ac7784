#include "qna/data/listed_dataset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "qna/base/error.h"
#include "qna/data/class_folders.h"
#include "qna/data/image_name.h"
#include "qna/format/text.h"
#include "qna/image/read.h"

namespace qna::data {
namespace {

namespace fs = std::filesystem;

// The class of every file of the list.
std::map<std::string, std::string> read_list(const std::string& path) {
  std::ifstream in(path);
  check(in.good(), "{}: cannot be read", path);
  std::map<std::string, std::string> class_of;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string file, name;
    if (!(words >> file)) continue;  // an empty line
    check(static_cast<bool>(words >> name), "{}, line {}: must be a file and its class, got {}",
          path, number, format::in_quotes(line));
    check(has_image_ending(file) && file.find('/') == std::string::npos,
          "{}, line {}: must begin with the name of a picture, got {}", path, number,
          format::in_quotes(file));
    check(class_of.emplace(file, name).second, "{}, line {}: {} is listed twice", path, number,
          format::in_quotes(file));
  }
  check(!class_of.empty(), "{}: it lists no pictures", path);
  return class_of;
}

}  // namespace

ListedDataset::ListedDataset(std::string folder, std::vector<std::string> class_names)
    : folder_(std::move(folder)) {
  const std::string list = (fs::path(folder_) / kListName).string();
  const auto class_of = read_list(list);
  std::set<std::string> names;
  for (const auto& [file, name] : class_of) names.insert(name);
  classes_ = class_list(names, std::move(class_names), list);
  std::map<std::string, int64_t> label_of;
  for (const std::string& name : classes_) label_of.emplace(name, label_of.size());
  for (const auto& [file, name] : class_of) entries_.push_back({label_of.at(name), file});
  std::sort(entries_.begin(), entries_.end());
}

const ListedDataset::Entry& ListedDataset::entry(int64_t index) const {
  check(index >= 0 && index < size(), "ListedDataset: index must be in [0, {}), got {}", size(),
        index);
  return entries_[index];
}

std::string ListedDataset::name(int64_t index) const {
  return (fs::path(folder_) / "images" / entry(index).file).string();
}

image::Image ListedDataset::read(int64_t index, int64_t channels) const {
  return image::read_image(name(index), {.channels = channels});
}

}  // namespace qna::data
