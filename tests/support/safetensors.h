// Reads a safetensors file: 8 bytes header length, a JSON header, then the tensors' bytes.
#pragma once

#include <torch/types.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "qna/base/error.h"

namespace qna::testing {

struct SafeTensors {
  std::map<std::string, torch::Tensor> tensors;  // float32
  std::map<std::string, std::string> metadata;

  const torch::Tensor& at(const std::string& name) const {
    const auto found = tensors.find(name);
    check(found != tensors.end(), "there is no tensor '{}'", name);
    return found->second;
  }
};

inline SafeTensors read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "cannot read {}", path);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  uint64_t header_size = 0;
  check(bytes.size() >= sizeof(header_size), "{} is cut off", path);
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));  // little-endian, as this machine
  check(header_size <= bytes.size() - sizeof(header_size), "{} is cut off", path);
  const char* const header = bytes.data() + sizeof(header_size);
  const char* const data = header + header_size;
  const size_t data_size = bytes.size() - sizeof(header_size) - header_size;

  SafeTensors result;
  const nlohmann::json entries = nlohmann::json::parse(header, data);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") {
      result.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    check(entry.at("dtype") == "F32", "{}: '{}' must be float32", path, name);
    const auto sizes = entry.at("shape").get<std::vector<int64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::array<size_t, 2>>();
    torch::Tensor tensor = torch::empty(sizes);
    check(offsets[1] <= data_size && offsets[1] - offsets[0] == tensor.nbytes(),
          "{}: '{}' has wrong offsets", path, name);
    std::memcpy(tensor.data_ptr(), data + offsets[0], tensor.nbytes());
    result.tensors.emplace(name, tensor);
  }
  return result;
}

}  // namespace qna::testing
