// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes, all
// little-endian (https://huggingface.co/docs/safetensors). A file may come from anywhere, so all
// its numbers are checked, by the rules of the Python library: no tensor overlaps another, no byte
// belongs to none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qna/format/dtype.h"
#include "qna/format/mapped_file.h"

namespace qna::format {

// Elements in row-major order. Whoever made the view keeps the bytes alive.
struct TensorView {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  // Throws qna::Error when the file cannot be read or breaks a rule.
  explicit SafetensorsFile(const std::string& path);
  // The same for bytes at hand, which are held; `origin` stands for the path in messages.
  SafetensorsFile(std::shared_ptr<const std::string> bytes, const std::string& origin);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // In the order of their bytes. Those are aligned to the element size in files written by
  // write_safetensors(), but not in every file there is.
  const std::vector<TensorView>& tensors() const { return tensors_; }

  const TensorView* find(std::string_view name) const;  // nullptr when there is none
  const TensorView& at(std::string_view name) const;    // throws when there is none

  // Hold this to use a view's bytes after the file object is gone.
  const std::shared_ptr<const void>& mapping() const { return mapping_; }

 private:
  void read(std::span<const std::byte> bytes);

  std::string path_;
  std::shared_ptr<const void> mapping_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> place in tensors_
};

// Byte for byte what the Python library writes: tensors by falling size of element, then by name.
// The file is whole or absent, as by qna::AtomicFile. Nothing of the tensors' size is copied.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// The same as bytes; `origin` begins messages.
std::string safetensors_bytes(std::span<const TensorView> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::string& origin);

// The paths of the safetensors files that lie directly in a folder, sorted; for messages to who
// gives a folder where a file is meant.
std::vector<std::string> safetensors_in(const std::string& folder);

}  // namespace qna::format
