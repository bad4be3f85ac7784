#include "tensor.h"

#include <algorithm>
#include <numeric>

#include "qna/base/error.h"
#include "qna/base/text.h"

namespace qna::python {
namespace {

const char* type_name(const Tensor& tensor) {
  return torch::headeronly::toString(tensor.scalar_type());
}

bool is_cpu(const Tensor& tensor) {
  static const int32_t cpu = aoti_torch_device_type_cpu();
  int32_t type;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  return type == cpu;
}

int32_t number_of(ScalarType type) {
  static const int32_t float32 = aoti_torch_dtype_float32(), bfloat16 = aoti_torch_dtype_bfloat16(),
                       float16 = aoti_torch_dtype_float16(), boolean = aoti_torch_dtype_bool();
  switch (type) {
    case ScalarType::BFloat16:
      return bfloat16;
    case ScalarType::Half:
      return float16;
    case ScalarType::Bool:
      return boolean;
    default:
      return float32;
  }
}

template <size_t kCount>
std::array<int64_t, kCount> numbers(const Integers& list, const char* name, const char* caller) {
  if (list.size() != kCount) {
    fail("{}: {} must have {} numbers, got {}", caller, name, kCount, in_brackets(list));
  }
  std::array<int64_t, kCount> out{};
  std::copy(list.begin(), list.end(), out.begin());
  return out;
}

}  // namespace

Tensor empty(std::span<const int64_t> sizes, ScalarType type, std::span<const int> order) {
  std::vector<int> dimensions(order.begin(), order.end());
  if (order.empty()) {
    dimensions.resize(sizes.size());
    std::iota(dimensions.begin(), dimensions.end(), 0);
  }
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension) {
    strides[*dimension] = stride;
    stride *= std::max<int64_t>(sizes[*dimension], 1);
  }
  AtenTensorHandle handle;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(sizes.size(), sizes.data(), strides.data(),
                                                         number_of(type),
                                                         aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

bool is_type(const Tensor& tensor, ScalarType type) {
  int32_t number;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number == number_of(type);
}

ScalarType map_type(const Tensor& map) {
  if (is_type(map, ScalarType::BFloat16)) return ScalarType::BFloat16;
  return is_type(map, ScalarType::Half) ? ScalarType::Half : ScalarType::Float;
}

Tensor as_contiguous(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

Tensor as_type(const Tensor& tensor, ScalarType type) {
  return is_type(tensor, type) ? tensor : torch::stable::to(tensor, type);
}

OptionalTensor as_table(const OptionalTensor& tensor) {
  if (!tensor.has_value()) return std::nullopt;
  return as_contiguous(as_type(*tensor, ScalarType::Float));
}

Geometry make_geometry(const Integers& kernel_size, const Integers& stride, const Integers& padding,
                       const Integers& dilation, const char* caller) {
  return {numbers<2>(kernel_size, "kernel_size", caller), numbers<2>(stride, "stride", caller),
          numbers<4>(padding, "padding (top, bottom, left, right)", caller),
          numbers<2>(dilation, "dilation", caller)};
}

kernels::WindowShape make_shape(int64_t batch, int64_t height, int64_t width, int64_t queries,
                                int64_t heads, int64_t head_dim, const Geometry& g, bool separate,
                                const char* caller) {
  const kernels::WindowShape shape{.batch = batch,
                                   .height = height,
                                   .width = width,
                                   .heads = heads,
                                   .head_dim = head_dim,
                                   .queries = queries,
                                   .kernel_h = g.kernel_size[0],
                                   .kernel_w = g.kernel_size[1],
                                   .stride_h = g.stride[0],
                                   .stride_w = g.stride[1],
                                   .pad_top = g.padding[0],
                                   .pad_bottom = g.padding[1],
                                   .pad_left = g.padding[2],
                                   .pad_right = g.padding[3],
                                   .dilation_h = g.dilation[0],
                                   .dilation_w = g.dilation[1],
                                   .separate = separate};
  kernels::check_shape(shape, caller);
  return shape;
}

// The texts are only made when a check fails: these run in every call.
void check_map(const Tensor& map, int64_t rank, const char* name, const char* caller) {
  if (map.dim() != rank) {
    fail("{}: {} must have {} dimensions, got {}", caller, name, rank, in_brackets(sizes_of(map)));
  }
  check(is_cpu(map), "{}: {} must be on the CPU", caller, name);
  if (!is_type(map, ScalarType::Float) && !is_type(map, ScalarType::BFloat16) &&
      !is_type(map, ScalarType::Half)) {
    fail("{}: {} must be float32, bfloat16 or float16, got {}", caller, name, type_name(map));
  }
}

void check_float32(const OptionalTensor& tensor, const char* name, const char* caller) {
  if (!tensor.has_value()) return;
  check(is_cpu(*tensor), "{}: {} must be on the CPU", caller, name);
  if (!is_type(*tensor, ScalarType::Float)) {
    fail("{}: {} must be float32, got {}", caller, name, type_name(*tensor));
  }
}

void check_sizes(const OptionalTensor& tensor, std::span<const int64_t> sizes, const char* name,
                 const char* caller) {
  if (!tensor.has_value()) return;
  check(is_cpu(*tensor), "{}: {} must be on the CPU", caller, name);
  if (!std::ranges::equal(sizes_of(*tensor), sizes)) {
    fail("{}: {} must be {}, got {}", caller, name, in_brackets(sizes),
         in_brackets(sizes_of(*tensor)));
  }
}

OptionalTensor check_mask(const OptionalTensor& mask, std::span<const int64_t> sizes,
                          const char* caller) {
  if (!mask.has_value()) return std::nullopt;
  const bool is_byte = mask->scalar_type() == ScalarType::Byte;
  if (!is_byte && !is_type(*mask, ScalarType::Bool)) {
    fail("{}: mask must be bool or uint8 (true takes part), got {}", caller, type_name(*mask));
  }
  check_sizes(*mask, sizes, "mask", caller);
  return as_contiguous(as_type(*mask, ScalarType::Bool));
}

}  // namespace qna::python
