#include "qna/ops/geometry.h"

#include <ATen/ATen.h>

#include "qna/base/error.h"

namespace qna::ops {
namespace {

template <size_t kCount>
std::array<int64_t, kCount> numbers(at::IntArrayRef list, const char* name, const char* caller) {
  check(list.size() == kCount, "{}: {} must have {} numbers, got {}", caller, name, kCount,
        in_brackets(list));
  std::array<int64_t, kCount> out;
  std::copy(list.begin(), list.end(), out.begin());
  return out;
}

}  // namespace

WindowGeometry make_geometry(at::IntArrayRef kernel_size, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::IntArrayRef dilation,
                             const char* caller) {
  return {numbers<2>(kernel_size, "kernel_size", caller), numbers<2>(stride, "stride", caller),
          numbers<4>(padding, "padding (top, bottom, left, right)", caller),
          numbers<2>(dilation, "dilation", caller)};
}

std::vector<int64_t> geometry_to_list(const WindowGeometry& g) {
  std::vector<int64_t> list(g.kernel_size.begin(), g.kernel_size.end());
  list.insert(list.end(), g.stride.begin(), g.stride.end());
  list.insert(list.end(), g.padding.begin(), g.padding.end());
  list.insert(list.end(), g.dilation.begin(), g.dilation.end());
  return list;
}

WindowGeometry geometry_from_list(at::IntArrayRef list) {
  return make_geometry(list.slice(0, 2), list.slice(2, 2), list.slice(4, 4), list.slice(8, 2),
                       "qna::geometry_from_list");
}

kernels::WindowShape make_shape(int64_t batch, int64_t height, int64_t width, int64_t queries,
                                int64_t heads, int64_t head_dim, const WindowGeometry& geometry,
                                bool separate, const char* caller) {
  const kernels::WindowShape shape{.batch = batch,
                                   .height = height,
                                   .width = width,
                                   .heads = heads,
                                   .head_dim = head_dim,
                                   .queries = queries,
                                   .kernel_h = geometry.kernel_size[0],
                                   .kernel_w = geometry.kernel_size[1],
                                   .stride_h = geometry.stride[0],
                                   .stride_w = geometry.stride[1],
                                   .pad_top = geometry.padding[0],
                                   .pad_bottom = geometry.padding[1],
                                   .pad_left = geometry.padding[2],
                                   .pad_right = geometry.padding[3],
                                   .dilation_h = geometry.dilation[0],
                                   .dilation_w = geometry.dilation[1],
                                   .separate = separate};
  kernels::check_shape(shape, caller);
  return shape;
}

void check_rank(const at::Tensor& tensor, int64_t rank, const char* layout, const char* name,
                const char* caller) {
  check(tensor.defined(), "{}: {} must be a tensor {}, got an undefined one", caller, name, layout);
  check(tensor.dim() == rank, "{}: {} must have {} dimensions {}, got {} with shape {}", caller,
        name, rank, layout, tensor.dim(), in_brackets(tensor.sizes()));
}

void check_sizes(const at::Tensor& tensor, at::IntArrayRef sizes, const char* layout,
                 const char* name, const char* caller) {
  check(tensor.sizes() == sizes, "{}: {} must be {} = {}, got {}", caller, name, layout,
        in_brackets(sizes), in_brackets(tensor.sizes()));
}

void check_sizes(const OptionalTensor& tensor, at::IntArrayRef sizes, const char* layout,
                 const char* name, const char* caller) {
  if (tensor.has_value() && tensor->defined()) check_sizes(*tensor, sizes, layout, name, caller);
}

void check_floating(const at::Tensor& tensor, const char* name, const char* caller) {
  const auto type = tensor.scalar_type();
  check(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble,
        "{}: {} must be float32, bfloat16, float16 or float64, got {}", caller, name,
        c10::toString(type));
}

void check_same_device(const at::Tensor& tensor, const OptionalTensor& other, const char* name,
                       const char* other_name, const char* caller) {
  if (!other.has_value() || !other->defined()) return;
  check(other->device() == tensor.device(), "{}: {} must be on the device of {} ({}), got {}",
        caller, other_name, name, tensor.device().str(), other->device().str());
}

void check_mask_type(const OptionalTensor& mask, const kernels::WindowShape& shape,
                     const char* caller) {
  if (!mask.has_value() || !mask->defined()) return;
  const auto type = mask->scalar_type();
  check(type == at::kBool || type == at::kByte,
        "{}: mask must be bool or uint8 (true takes part), got {}", caller, c10::toString(type));
  check_sizes(*mask, {shape.batch, shape.height, shape.width}, "[batch, height, width]", "mask",
              caller);
}

OptionalTensor check_mask(const OptionalTensor& mask, const kernels::WindowShape& shape,
                          const char* caller) {
  if (!mask.has_value() || !mask->defined()) return std::nullopt;
  check_mask_type(mask, shape, caller);
  return mask->to(at::kBool).contiguous();
}

}  // namespace qna::ops
