// The window's geometry as torch users give it, and the checks at the door.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qna/base/text.h"
#include "qna/kernels/window_shape.h"

namespace qna::ops {

using OptionalTensor = std::optional<at::Tensor>;
inline bool given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

struct WindowGeometry {
  std::array<int64_t, 2> kernel_size = {3, 3};  // height, width
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 4> padding = {0, 0, 0, 0};  // top, bottom, left, right
  std::array<int64_t, 2> dilation = {1, 1};
};

// The geometry from the operators' integer lists. Throws qna::Error unless they have 2, 2, 4 and 2
// numbers.
WindowGeometry make_geometry(at::IntArrayRef kernel_size, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::IntArrayRef dilation, const char* caller);

// To and from one list of 10 numbers, in the order above: what autograd keeps.
std::vector<int64_t> geometry_to_list(const WindowGeometry& geometry);
WindowGeometry geometry_from_list(at::IntArrayRef list);

// A shape with every field checked.
kernels::WindowShape make_shape(int64_t batch, int64_t height, int64_t width, int64_t queries,
                                int64_t heads, int64_t head_dim, const WindowGeometry& geometry,
                                bool separate, const char* caller);

// Checks of one argument each; all throw qna::Error that names argument, rule and what was seen.
void check_rank(const at::Tensor& tensor, int64_t rank, const char* layout, const char* name,
                const char* caller);
void check_sizes(const at::Tensor& tensor, at::IntArrayRef sizes, const char* layout,
                 const char* name, const char* caller);
void check_sizes(const OptionalTensor& tensor, at::IntArrayRef sizes, const char* layout,
                 const char* name, const char* caller);
void check_floating(const at::Tensor& tensor, const char* name, const char* caller);
void check_same_device(const at::Tensor& tensor, const OptionalTensor& other, const char* name,
                       const char* other_name, const char* caller);
// A mask is bool (or uint8): true takes part.
void check_mask_type(const OptionalTensor& mask, const kernels::WindowShape& shape,
                     const char* caller);
// The checked mask as contiguous bool, or nothing.
OptionalTensor check_mask(const OptionalTensor& mask, const kernels::WindowShape& shape,
                          const char* caller);

}  // namespace qna::ops
