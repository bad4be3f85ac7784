// Tensors of torch's stable interface as the kernels take them. Nothing here, nor in the other
// files of this folder, needs a C++ symbol of LibTorch.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "qna/base/half.h"
#include "qna/kernels/window_shape.h"

namespace qna::python {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Integers = std::vector<int64_t>;  // int[] in a schema

// Uninitialised, on the CPU. `order` is the order of the dimensions in memory, the slowest first;
// empty: as they are.
Tensor empty(std::span<const int64_t> sizes, ScalarType type, std::span<const int> order = {});
inline Tensor empty(std::initializer_list<int64_t> sizes, ScalarType type) {
  return empty(std::span(sizes.begin(), sizes.size()), type);
}
// A float32 table, or one of no element where it is not wanted.
inline Tensor table(std::span<const int64_t> sizes, bool wanted = true) {
  return wanted ? empty(sizes, ScalarType::Float) : empty({0}, ScalarType::Float);
}
inline Tensor table(std::initializer_list<int64_t> sizes, bool wanted = true) {
  return table(std::span(sizes.begin(), sizes.size()), wanted);
}
inline std::span<const int64_t> sizes_of(const Tensor& tensor) {
  return {tensor.sizes().data(), static_cast<size_t>(tensor.dim())};
}

// torch's own way to a dtype asks for the number of every dtype there is.
bool is_type(const Tensor& tensor, ScalarType type);
ScalarType map_type(const Tensor& map);  // of float32, bfloat16 and float16

// The tensor itself where it is so already.
Tensor as_contiguous(const Tensor& tensor);
Tensor as_type(const Tensor& tensor, ScalarType type);
// Small tables are float32 for the kernels.
OptionalTensor as_table(const OptionalTensor& tensor);

template <typename T>
T* pointer(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
inline const float* table_pointer(const OptionalTensor& tensor) {
  return tensor.has_value() ? pointer<const float>(*tensor) : nullptr;
}
// Null for a table that was not wanted.
inline float* wanted_pointer(const Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : pointer<float>(tensor);
}
inline const uint8_t* mask_pointer(const OptionalTensor& mask) {
  return mask.has_value() ? pointer<const uint8_t>(*mask) : nullptr;
}

// Calls run(T{}) with the kernels' type for the dtype, which must have passed check_map.
template <typename Run>
void dispatch_type(ScalarType type, const Run& run) {
  if (type == ScalarType::Float) return run(float{});
  if (type == ScalarType::BFloat16) return run(BFloat16{});
  return run(Float16{});
}

// The window's geometry as it stands in the operators' schemas.
struct Geometry {
  std::array<int64_t, 2> kernel_size, stride;
  std::array<int64_t, 4> padding;  // top, bottom, left, right
  std::array<int64_t, 2> dilation;
};
Geometry make_geometry(const Integers& kernel_size, const Integers& stride, const Integers& padding,
                       const Integers& dilation, const char* caller);
// A shape with every field checked.
kernels::WindowShape make_shape(int64_t batch, int64_t height, int64_t width, int64_t queries,
                                int64_t heads, int64_t head_dim, const Geometry& geometry,
                                bool separate, const char* caller);

// Checks at the door; all throw qna::Error that names argument, rule and what was seen.
//   map: of this rank, float32, bfloat16 or float16, on the CPU
void check_map(const Tensor& map, int64_t rank, const char* name, const char* caller);
void check_float32(const OptionalTensor& tensor, const char* name, const char* caller);
void check_sizes(const OptionalTensor& tensor, std::span<const int64_t> sizes, const char* name,
                 const char* caller);
inline void check_sizes(const OptionalTensor& tensor, std::initializer_list<int64_t> sizes,
                        const char* name, const char* caller) {
  check_sizes(tensor, std::span(sizes.begin(), sizes.size()), name, caller);
}
// The checked mask as contiguous bool, or nothing.
OptionalTensor check_mask(const OptionalTensor& mask, std::span<const int64_t> sizes,
                          const char* caller);

}  // namespace qna::python
