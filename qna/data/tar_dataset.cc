#include "qna/data/tar_dataset.h"

#include <map>
#include <optional>
#include <string_view>

#include "qna/base/error.h"
#include "qna/data/archive_reader.h"
#include "qna/data/class_folders.h"
#include "qna/data/image_name.h"
#include "qna/image/read.h"

namespace qna::data {
namespace {

using Member = ArchiveReader::Member;

// What a member takes beside its bytes, so that a million empty ones count too.
constexpr int64_t kMemberBytes = 256;

// Whether any part of the path is hidden.
bool has_hidden_part(std::string_view name) {
  return is_hidden(name) || name.find("/.") != std::string_view::npos;
}

// `name` below `folder`; nothing if it lies elsewhere or is the folder itself.
std::optional<std::string> below(const std::string& name, const std::string& folder) {
  if (folder.empty()) return name.empty() ? std::nullopt : std::optional(name);
  if (!name.starts_with(folder + "/")) return std::nullopt;
  return name.substr(folder.size() + 1);
}

}  // namespace

TarDataset::TarDataset(std::string path, TarOptions options)
    : path_(std::move(path)), folder_(std::move(options.folder)) {
  const std::string where = folder_.empty() ? path_ : path_ + ":" + folder_;
  std::set<std::string> folders;                         // of the classes
  std::map<std::string, std::vector<uint8_t>> contents;  // by name
  bool has_images = false;
  int64_t left = options.max_bytes;
  const auto take = [&](int64_t bytes) {
    left -= bytes;
    check(left >= 0, "{}: its pictures must have at most max_bytes, {}; unpack it to a folder",
          where, options.max_bytes);
  };

  ArchiveReader archive(path_);
  while (const std::optional<Member> member = archive.next()) {
    const std::optional<std::string> name = below(member->name, folder_);
    if (!name || has_hidden_part(*name)) continue;
    const size_t slash = name->find('/');
    const bool in_class = slash != std::string::npos;
    if (member->kind == Member::Kind::kFolder) {
      take(kMemberBytes + static_cast<int64_t>(name->size()));
      folders.insert(name->substr(0, slash));
    }
    const bool is_file = member->kind == Member::Kind::kFile;
    const bool is_link = member->kind == Member::Kind::kLink;
    if (!is_file && !is_link) continue;
    if (!has_image_ending(*name)) {
      if (in_class) left_out_.add(*name);
      continue;
    }
    has_images = true;
    if (!in_class) continue;
    check(is_file,
          "{}:{}: this is a link; make the archive with tar --dereference --hard-dereference",
          path_, member->name);
    take(kMemberBytes + static_cast<int64_t>(name->size()));
    std::vector<uint8_t> bytes = archive.read(left);
    take(static_cast<int64_t>(bytes.size()));
    folders.insert(name->substr(0, slash));
    contents.insert_or_assign(*name, std::move(bytes));
  }
  if (folders.empty()) fail_without_classes(where, has_images);

  classes_ = class_list(folders, std::move(options.class_names), where);
  for (size_t label = 0; label < classes_.size(); ++label) {
    const std::string prefix = classes_[label] + "/";
    const size_t before = entries_.size();
    for (auto it = contents.lower_bound(prefix);
         it != contents.end() && it->first.starts_with(prefix); ++it) {
      entries_.push_back({static_cast<int64_t>(label), it->first, std::move(it->second)});
    }
    if (entries_.size() == before && folders.contains(classes_[label])) {
      fail_empty_class(where, classes_[label], left_out_);
    }
  }
}

const TarDataset::Entry& TarDataset::entry(int64_t index) const {
  check(index >= 0 && index < size(), "TarDataset: index must be in [0, {}), got {}", size(),
        index);
  return entries_[index];
}

int64_t TarDataset::label(int64_t index) const { return entry(index).label; }

std::string TarDataset::name(int64_t index) const {
  return fmt::format("{}:{}{}{}", path_, folder_, folder_.empty() ? "" : "/", entry(index).name);
}

image::Image TarDataset::read(int64_t index, int64_t channels) const {
  return image::decode_image(entry(index).bytes, name(index), {.channels = channels});
}

std::set<std::string> tar_folders(const std::string& path) {
  constexpr size_t kMaxFolders = size_t{1} << 20;
  std::set<std::string> folders;
  ArchiveReader archive(path);
  while (const std::optional<Member> member = archive.next()) {
    if (!has_image_ending(member->name) || has_hidden_part(member->name)) continue;
    for (size_t slash = member->name.rfind('/'); slash != std::string::npos && slash > 0;
         slash = member->name.rfind('/', slash - 1)) {
      if (!folders.insert(member->name.substr(0, slash)).second) break;  // those above are known
    }
    check(folders.size() <= kMaxFolders, "{}: there must be at most {} folders in it", path,
          kMaxFolders);
  }
  return folders;
}

}  // namespace qna::data
