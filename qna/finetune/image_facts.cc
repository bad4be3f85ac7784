#include "qna/finetune/image_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "qna/base/error.h"
#include "qna/base/random.h"
#include "qna/data/order.h"
#include "qna/format/mapped_file.h"

namespace qna::finetune {
namespace {

namespace fs = std::filesystem;

// About 5 seconds of decoding.
constexpr int64_t kMaxPixels = int64_t{500} << 20;

uint64_t hash_of(const std::string& path) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto file = format::MappedFile::open(path);
  for (const std::byte byte : file->bytes()) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

// Files by their size: only those that share one can be equal, and need to be read.
using BySize = std::map<uintmax_t, std::vector<std::string>>;

BySize by_size(const std::vector<std::string>& paths) {
  BySize found;
  for (const std::string& path : paths) {
    std::error_code error;
    const uintmax_t size = fs::file_size(path, error);
    if (!error && size > 0) found[size].push_back(path);
  }
  return found;
}

void add_duplicate(Duplicates& found, const std::string& one, const std::string& other) {
  if (found.count++ > 0) return;
  found.one = one;
  found.other = other;
}

}  // namespace

ImageFacts look_at(const ImageList& images, int64_t most) {
  ImageFacts facts;
  std::vector<int64_t> sides;
  Random random(0, 0, 0, kOrder);
  int64_t pixels = 0;
  for (const int64_t index : data::permutation(images.count, random)) {
    if (facts.opened == most || pixels > kMaxPixels) break;
    ++facts.opened;
    try {
      const image::Image image = images.read(index);
      pixels += image.height * image.width;
      sides.push_back(std::min(image.height, image.width));
    } catch (const Error& error) {
      facts.broken.push_back(error.what());
    }
  }
  if (sides.empty()) return facts;
  std::ranges::sort(sides);
  facts.smallest = sides.front();
  facts.median = sides[sides.size() / 2];
  facts.largest = sides.back();
  return facts;
}

Duplicates find_duplicates(const std::vector<std::string>& train,
                           const std::vector<std::string>& val) {
  Duplicates found;
  const BySize in_train = by_size(train);
  if (val.empty()) {
    for (const auto& [size, paths] : in_train) {
      std::map<uint64_t, std::string> seen;
      for (const std::string& path : paths) {
        if (paths.size() == 1) break;
        const auto [place, is_new] = seen.emplace(hash_of(path), path);
        if (!is_new) add_duplicate(found, place->second, path);
      }
    }
    return found;
  }
  for (const auto& [size, paths] : by_size(val)) {
    const auto same_size = in_train.find(size);
    if (same_size == in_train.end()) continue;
    std::map<uint64_t, std::string> seen;
    for (const std::string& path : same_size->second) seen.emplace(hash_of(path), path);
    for (const std::string& path : paths) {
      const auto place = seen.find(hash_of(path));
      if (place != seen.end()) add_duplicate(found, place->second, path);
    }
  }
  return found;
}

}  // namespace qna::finetune
