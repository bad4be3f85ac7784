// All tensors of a safetensors file.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "qna/base/error.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/format/safetensors.h"

namespace qna::testing {

struct SafeTensors {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  const torch::Tensor& at(const std::string& name) const {
    const auto found = tensors.find(name);
    check(found != tensors.end(), "there is no tensor '{}'", name);
    return found->second;
  }
};

inline SafeTensors read_safetensors(const std::string& path) {
  const format::SafetensorsFile file(path);
  SafeTensors result{.tensors = {}, .metadata = file.metadata()};
  for (const format::TensorView& view : file.tensors()) {
    result.tensors.emplace(view.name, checkpoint::tensor_from(view, path));
  }
  return result;
}

}  // namespace qna::testing
