#include "qna/data/open_dataset.h"

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/data/folder_dataset.h"
#include "qna/data/idx_dataset.h"
#include "qna/data/listed_dataset.h"
#include "qna/data/subset.h"
#include "qna/data/tar_dataset.h"

namespace qna::data {
namespace {

namespace fs = std::filesystem;
using Pointer = std::shared_ptr<const Dataset>;

// Where images lie, whatever the kind of the place.
struct Place {
  std::function<bool(const std::string& split)> has;
  std::function<Pointer(const std::string& split)> open;  // "": without a split
};

bool is_split_name(const std::string& name) {
  return name == "train" || name == "val" || name == "test";
}

Place folder_place(const DatasetOptions& options) {
  const fs::path root = options.path;
  return {.has =
              [=](const std::string& split) {
                std::error_code ignored;
                return fs::is_directory(root / split, ignored);
              },
          .open = [=](const std::string& split) -> Pointer {
            const fs::path folder = split.empty() ? root : root / split;
            std::error_code ignored;
            if (fs::exists(folder / kListName, ignored)) {
              return std::make_shared<ListedDataset>(folder.string(), options.class_names);
            }
            return std::make_shared<FolderDataset>(folder.string(), options.class_names);
          }};
}

// Many archives have all they have in one folder, named like the archive.
std::string wrapping_folder(const std::set<std::string>& folders) {
  std::set<std::string> tops;
  std::string top;
  bool is_nested = false;
  for (const std::string& folder : folders) {
    top = folder.substr(0, folder.find('/'));
    tops.insert(top);
    is_nested = is_nested || top != folder;
  }
  return tops.size() == 1 && is_nested && !is_split_name(top) ? top : "";
}

Place tar_place(const DatasetOptions& options) {
  const std::set<std::string> folders = tar_folders(options.path);
  const std::string wrapper = wrapping_folder(folders);
  const auto inside = [=](const std::string& split) {
    return wrapper.empty() || split.empty() ? wrapper + split : wrapper + "/" + split;
  };
  return {.has = [=](const std::string& split) { return folders.contains(inside(split)); },
          .open = [=](const std::string& split) -> Pointer {
            return std::make_shared<TarDataset>(
                options.path,
                TarOptions{.folder = inside(split), .class_names = options.class_names});
          }};
}

// {files of images, files of labels} in the folder, by "train" and "test".
struct IdxFiles {
  std::map<std::string, std::string> images;
  std::map<std::string, std::string> labels;
  bool empty() const { return images.empty() && labels.empty(); }
};

IdxFiles find_idx_files(const std::string& path) {
  IdxFiles found;
  std::error_code error;
  fs::directory_iterator walk(path, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    std::string stem = walk->path().filename().string();
    if (stem.ends_with(".gz")) stem.resize(stem.size() - 3);
    for (const std::string separator : {"-", "."})  // both are in use
      for (const std::string prefix : {"train", "t10k", "test"})
        for (const bool is_images : {true, false}) {
          const std::string ending = is_images ? "-images" + separator + "idx3-ubyte"
                                               : "-labels" + separator + "idx1-ubyte";
          if (!stem.ends_with(prefix + ending)) continue;
          auto& files = is_images ? found.images : found.labels;
          const auto [place, is_new] =
              files.emplace(prefix == "train" ? "train" : "test", walk->path().string());
          check(is_new, "{}: there must be one file *{}{} in it, got {} and {}", path, prefix,
                ending, fs::path(place->second).filename().string(),
                walk->path().filename().string());
        }
  }
  check(!error, "{}: cannot be read: {}", path, error.message());
  return found;
}

Place idx_place(const DatasetOptions& options, const IdxFiles& files) {
  return {.has = [=](const std::string& split) { return files.images.contains(split); },
          .open = [=](const std::string& split) -> Pointer {
            const std::string part = split.empty() ? "train" : split;
            const char* prefix = part == "train" ? "train" : "t10k";
            check(files.images.contains(part), "{}: there is no file {}-images-idx3-ubyte in it",
                  options.path, prefix);
            check(files.labels.contains(part), "{}: there is no file {}-labels-idx1-ubyte in it",
                  options.path, prefix);
            return std::make_shared<IdxDataset>(files.images.at(part), files.labels.at(part),
                                                options.class_names);
          }};
}

Place find_place(const DatasetOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(options.path, error);
  const std::string meant = fs::exists(status) ? "" : did_you_mean_file(options.path);
  check(fs::exists(status),
        "{}: there is no such file or folder{} path must be a folder of class folders, a folder of "
        "idx files or a tar file",
        options.path, meant.empty() ? ";" : meant);
  if (!fs::is_directory(status)) return tar_place(options);
  const IdxFiles files = find_idx_files(options.path);
  return files.empty() ? folder_place(options) : idx_place(options, files);
}

// The class folders that lie directly in the place.
Pointer open_whole(const Place& place, const DatasetOptions& options) {
  Pointer dataset = place.open("");
  // Otherwise a model would learn to tell training images from validation images.
  for (const std::string& name : dataset->classes()) {
    if (!is_split_name(name)) return dataset;
  }
  fail("{}: its folders are {}, which are no classes; choose one by split", options.path,
       fmt::join(dataset->classes(), ", "));
}

Pointer open_split(const Place& place, const DatasetOptions& options) {
  const std::string& split = options.split;
  if (split.empty()) return open_whole(place, options);
  if (place.has(split)) return place.open(split);
  const std::string other = split == "val" ? "test" : split == "test" ? "val" : "";
  if (!other.empty() && place.has(other)) return place.open(other);
  fail("{}: there is no split '{}' in it{}", options.path, split,
       split == "train" || split == "val"
           ? "; with val_fraction above 0, pictures are held back for 'val' and the rest is 'train'; "
             "split '' takes all of them"
           : "");
}

// Those of the classes that keep_classes says.
Pointer kept(Pointer dataset, const DatasetOptions& options) {
  const int64_t keep = options.keep_classes;
  if (keep == 0) return dataset;
  const auto all = static_cast<int64_t>(dataset->classes().size());
  check(keep <= all, "{}: keep_classes must be at most its {} classes, got {}", options.path, all,
        keep);
  std::vector<std::string> names;
  for (int64_t i = 0; i < keep; ++i) names.push_back(dataset->classes()[i * all / keep]);
  return only_classes(std::move(dataset), std::move(names));
}

}  // namespace

bool has_split(const std::string& path, const std::string& split) {
  const Place place = find_place({.path = path});
  const std::string other = split == "val" ? "test" : split == "test" ? "val" : "";
  return place.has(split) || (!other.empty() && place.has(other));
}

Pointer open_dataset(const DatasetOptions& options) {
  const double fraction = options.val_fraction;
  check(fraction >= 0 && fraction < 1,
        "open_dataset: val_fraction must be at least 0 and below 1, got {}", fraction);
  check(
      options.split.find('/') == std::string::npos && options.split != "." && options.split != "..",
      "open_dataset: split must be the name of a folder, got '{}'", options.split);
  check(fraction == 0 || is_split_name(options.split),
        "open_dataset: with val_fraction, split must be train, val or test, got '{}'",
        options.split);
  check(options.keep_classes >= 0, "open_dataset: keep_classes must be at least 0, got {}",
        options.keep_classes);
  const Place place = find_place(options);
  if (fraction == 0 || options.split == "test") return kept(open_split(place, options), options);
  const Pointer images =
      kept(place.has("train") ? place.open("train") : open_whole(place, options), options);
  const Split parts = split_dataset(images, fraction, options.split_seed);
  return options.split == "train" ? parts.train : parts.val;
}

}  // namespace qna::data
