#include "qna/format/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/format/safetensors_layout.h"
#include "qna/format/text.h"

namespace qna::format {
namespace {

using nlohmann::json;

// A run's folder is easily given in the place of its weights.
void check_not_folder(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return;
  const std::vector<std::string> inside = safetensors_in(path);
  if (inside.empty()) fail("cannot read {}: it is a folder, not a regular file", path);
  fail("cannot read {}: it is a folder, not a regular file; name one of the files in it: {}", path,
       fmt::join(inside, ", "));
}

std::string_view header_of(const std::string& path, std::span<const std::byte> file) {
  check(file.size() >= kLengthBytes, "{}: a safetensors file has at least {} bytes, got {}", path,
        kLengthBytes, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const size_t rest = file.size() - kLengthBytes;
  check(length > 0, "{}: the header length must not be 0", path);
  check(length <= kMaxHeaderBytes,
        "{}: this is not a safetensors file: the header length must be at most {}, got {}", path,
        kMaxHeaderBytes, length);
  check(length <= rest, "{}: the header length is {}, but only {} bytes follow", path, length,
        rest);
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

// Stricter than nlohmann::json is by itself: that skips a byte order mark, takes a zero byte for
// the end, keeps the last of two equal keys, and nests as deep as the text asks for.
json parse_header(const std::string& path, std::string_view text) {
  check(text.front() == '{', "{}: the header must be a JSON object, but starts with {}", path,
        in_quotes(text.substr(0, 1)));
  check(is_utf8(text), "{}: the header is not UTF-8", path);
  check(text.find('\0') == text.npos, "{}: the header holds a zero byte", path);

  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto guard = [&](int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      constexpr int kDeepest = 2;  // the list in {"name": {"shape": []}}
      check(depth <= kDeepest, "{}: the header is nested too deeply", path);
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      check(keys.back().insert(key).second, "{}: the header has the key {} twice", path,
            in_quotes(key));
    }
    return true;
  };
  try {
    return json::parse(text, guard);
  } catch (const json::exception& error) {
    fail("{}: the header is not JSON: {}", path, in_quotes(error.what()));
  }
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const json& entry) {
  check(entry.is_object(), "{}: {} must be an object, got {}", path, kMetadataKey,
        entry.type_name());
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    check(value.is_string(), "{}: {} must hold strings, but {} is of type {}", path, kMetadataKey,
          in_quotes(key), value.type_name());
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// One tensor's entry in the header. `where` begins its messages: the file and the tensor.
class Entry {
 public:
  Entry(std::string where, const json& value) : where_(std::move(where)), value_(value) {
    check(value.is_object(), "{}: the entry must be an object, got {}", where_, value.type_name());
    // A key that is not known may well change what the bytes mean.
    for (const auto& [key, unused] : value.items()) {
      check(key == "dtype" || key == "shape" || key == "data_offsets", "{}: unknown key {}", where_,
            in_quotes(key));
    }
  }

  DType dtype() const {
    const json& value = member("dtype");
    check(value.is_string(), "{}: dtype must be a string, got {}", where_, value.type_name());
    const auto& name = value.get_ref<const std::string&>();
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) fail("{}: dtype must be one of {}, got {}", where_, all_names(), in_quotes(name));
    return *dtype;
  }

  std::vector<int64_t> shape() const { return integers("shape"); }

  // The tensor's part of `data`, all bytes behind the header.
  std::span<const std::byte> bytes(std::span<const std::byte> data, DType dtype,
                                   std::span<const int64_t> shape) const {
    const std::vector<int64_t> offsets = integers("data_offsets");
    check(offsets.size() == 2, "{}: data_offsets must hold 2 integers, got {}", where_,
          offsets.size());
    const auto begin = static_cast<size_t>(offsets[0]);
    const auto end = static_cast<size_t>(offsets[1]);
    check(begin <= end, "{}: data_offsets must not fall, got [{}, {}]", where_, begin, end);
    check(end <= data.size(), "{}: data_offsets end at {}, but the file has {} bytes of data",
          where_, end, data.size());
    const std::optional<size_t> wanted = byte_count(dtype, shape);
    check(wanted.has_value(), "{}: shape {} makes 2^63 bytes or more", where_, in_brackets(shape));
    check(end - begin == *wanted, "{}: {} {} takes {} bytes, but data_offsets make {}", where_,
          name_of(dtype), in_brackets(shape), *wanted, end - begin);
    return data.subspan(begin, end - begin);
  }

 private:
  const json& member(const char* key) const {
    const auto found = value_.find(key);
    check(found != value_.end(), "{}: {} is missing", where_, key);
    return *found;
  }

  std::vector<int64_t> integers(const char* key) const {
    const json& list = member(key);
    check(list.is_array(), "{}: {} must be a list, got {}", where_, key, list.type_name());
    std::vector<int64_t> values;
    for (const json& item : list) {
      // The parser calls an integer unsigned when it has no sign.
      if (!item.is_number_unsigned() || !std::in_range<int64_t>(item.get<uint64_t>())) {
        fail("{}: {} must hold integers from 0 to 2^63 - 1, got {}", where_, key,
             in_quotes(item.dump()));
      }
      values.push_back(item.get<int64_t>());
    }
    return values;
  }

  const std::string where_;
  const json& value_;
};

// Sorts by place, and checks that the tensors cover the data without hole or overlap.
void put_in_order(const std::string& path, std::span<const std::byte> data,
                  std::vector<TensorView>& tensors) {
  const auto place = [](const TensorView& tensor) {  // empty tensors before what they touch
    return std::tuple(tensor.bytes.data(), tensor.bytes.size(), std::string_view(tensor.name));
  };
  std::ranges::sort(tensors, {}, place);
  size_t covered = 0;
  for (const TensorView& tensor : tensors) {
    const auto begin = static_cast<size_t>(tensor.bytes.data() - data.data());
    check(begin >= covered, "{}: tensor {} begins at {}, inside the one before, which ends at {}",
          path, in_quotes(tensor.name), begin, covered);
    check(begin == covered, "{}: the bytes {} to {}, before tensor {}, belong to no tensor", path,
          covered, begin, in_quotes(tensor.name));
    covered = begin + tensor.bytes.size();
  }
  check(covered == data.size(), "{}: the last {} bytes belong to no tensor", path,
        data.size() - covered);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  check_not_folder(path);
  const std::shared_ptr<const MappedFile> mapping = MappedFile::open(path);
  mapping_ = mapping;
  read(mapping->bytes());
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const std::string> bytes,
                                 const std::string& origin)
    : path_(origin), mapping_(bytes) {
  read(std::as_bytes(std::span(*bytes)));
}

void SafetensorsFile::read(std::span<const std::byte> bytes) {
  const std::string& path = path_;
  const std::string_view header = header_of(path, bytes);
  const auto data = bytes.subspan(kLengthBytes + header.size());
  const json entries = parse_header(path, header);
  for (const auto& [name, value] : entries.items()) {
    if (name == kMetadataKey) {
      metadata_ = parse_metadata(path, value);
      continue;
    }
    const Entry entry(fmt::format("{}: tensor {}", path, in_quotes(name)), value);
    TensorView tensor{.name = name, .dtype = entry.dtype(), .shape = entry.shape(), .bytes = {}};
    tensor.bytes = entry.bytes(data, tensor.dtype, tensor.shape);
    tensors_.push_back(std::move(tensor));
  }
  put_in_order(path, data, tensors_);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  const TensorView* const tensor = find(name);
  check(tensor != nullptr, "{}: there is no tensor {}", path_, in_quotes(name));
  return *tensor;
}

std::vector<std::string> safetensors_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    if (walk->path().extension() == ".safetensors") found.push_back(walk->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace qna::format
