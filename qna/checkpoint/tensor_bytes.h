// Tensors from and to the bytes of files.
#pragma once

#include <torch/types.h>

#include <string>

#include "qna/format/safetensors.h"

namespace qna::checkpoint {

// A copy, whatever the alignment of the bytes. `origin` is for messages.
torch::Tensor tensor_from(const format::TensorView& view, const std::string& origin);

// The bytes of a contiguous CPU tensor, which must outlive the view.
format::TensorView view_of(const std::string& name, const torch::Tensor& tensor);

}  // namespace qna::checkpoint
