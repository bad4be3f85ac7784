#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/base/text.h"
#include "qna/format/safetensors.h"
#include "qna/format/safetensors_layout.h"
#include "qna/format/text.h"

namespace qna::format {
namespace {

using Metadata = std::map<std::string, std::string>;

std::string in_json(const std::string& text) { return nlohmann::json(text).dump(); }

void check_tensors(const std::string& path, std::span<const TensorView> tensors) {
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    const std::string name = in_quotes(tensor.name);
    check(is_utf8(tensor.name), "{}: the tensor name {} is not UTF-8", path, name);
    check(tensor.name != kMetadataKey, "{}: a tensor must not be named {}", path, name);
    check(names.insert(tensor.name).second, "{}: there are two tensors {}", path, name);
    const std::optional<size_t> wanted = byte_count(tensor.dtype, tensor.shape);
    const std::string shape = in_brackets(tensor.shape);
    check(wanted.has_value(), "{}: tensor {}: shape {} has a negative size or is too large", path,
          name, shape);
    check(tensor.bytes.size() == *wanted, "{}: tensor {}: {} {} takes {} bytes, got {}", path, name,
          name_of(tensor.dtype), shape, *wanted, tensor.bytes.size());
  }
}

void check_metadata(const std::string& path, const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    check(is_utf8(key) && is_utf8(value), "{}: metadata {} = {} is not UTF-8", path, in_quotes(key),
          in_quotes(value));
  }
}

// Larger elements first, so that every tensor is aligned when the first one is.
std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, [](const TensorView* a, const TensorView* b) {
    return std::tie(b->dtype, a->name) < std::tie(a->dtype, b->name);
  });
  return order;
}

std::string header_for(std::span<const TensorView* const> order, const Metadata& metadata) {
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    entries.push_back(fmt::format(R"("{}":{})", kMetadataKey, nlohmann::json(metadata).dump()));
  }
  size_t offset = 0;
  for (const TensorView* tensor : order) {
    const size_t end = offset + tensor->bytes.size();
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  in_json(tensor->name), name_of(tensor->dtype),
                                  fmt::join(tensor->shape, ","), offset, end));
    offset = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
  constexpr size_t kAlignment = 8;  // of the data, counted from the start of the file
  const size_t used = (kLengthBytes + header.size()) % kAlignment;
  header.append((kAlignment - used) % kAlignment, ' ');
  return header;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Hands out the file piece by piece.
void for_each_piece(std::span<const TensorView> tensors, const Metadata& metadata,
                    const std::string& origin, const std::function<void(std::string_view)>& write) {
  check_tensors(origin, tensors);
  check_metadata(origin, metadata);
  const std::vector<const TensorView*> order = in_file_order(tensors);
  const std::string header = header_for(order, metadata);
  check(header.size() <= kMaxHeaderBytes, "{}: the header must have at most {} bytes, got {}",
        origin, kMaxHeaderBytes, header.size());
  const uint64_t length = header.size();
  write(as_text(std::as_bytes(std::span(&length, 1))));
  write(header);
  for (const TensorView* tensor : order) write(as_text(tensor->bytes));
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  std::optional<AtomicFile> file;  // opened when all is checked
  for_each_piece(tensors, metadata, path, [&](std::string_view bytes) {
    if (!file) file.emplace(path);
    file->write(bytes);
  });
  file->commit();
}

std::string safetensors_bytes(std::span<const TensorView> tensors, const Metadata& metadata,
                              const std::string& origin) {
  std::string out;
  for_each_piece(tensors, metadata, origin, [&](std::string_view bytes) { out += bytes; });
  return out;
}

}  // namespace qna::format
