#include "qna/checkpoint/tensor_bytes.h"

#include <cstring>
#include <utility>

#include "qna/base/error.h"

namespace qna::checkpoint {
namespace {

using format::DType;

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::kBool, at::kBool}, {DType::kU8, at::kByte},       {DType::kI8, at::kChar},
    {DType::kI16, at::kShort}, {DType::kI32, at::kInt},       {DType::kI64, at::kLong},
    {DType::kF16, at::kHalf},  {DType::kBF16, at::kBFloat16}, {DType::kF32, at::kFloat},
    {DType::kF64, at::kDouble}};

torch::Tensor copy(DType dtype, const std::vector<int64_t>& shape, std::span<const std::byte> bytes,
                   const std::string& what) {
  for (const auto& [ours, torchs] : kTypes) {
    if (ours != dtype) continue;
    const torch::Tensor tensor = torch::empty(shape, torchs);
    check(tensor.nbytes() == bytes.size(), "{} has {} bytes, its shape needs {}", what,
          bytes.size(), tensor.nbytes());
    if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }
  fail("{} is of type {}, which no parameter has", what, format::name_of(dtype));
}

}  // namespace

torch::Tensor tensor_from(const format::TensorView& view, const std::string& origin) {
  return copy(view.dtype, view.shape, view.bytes, fmt::format("{}: '{}'", origin, view.name));
}

format::TensorView view_of(const std::string& name, const torch::Tensor& tensor) {
  for (const auto& [ours, torchs] : kTypes) {
    if (torchs != tensor.scalar_type()) continue;
    return {name,
            ours,
            tensor.sizes().vec(),
            {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
  }
  fail("'{}': tensors of this type cannot be written", name);
}

}  // namespace qna::checkpoint
