// The element types a weight file may hold, and how many bytes a tensor of them takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace qna::format {

// In the order of the safetensors library, which lays out files by it: sizes never fall.
enum class DType { kBool, kU8, kI8, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kF64, kI64, kU64 };

size_t size_of(DType dtype);                  // of one element, in bytes
std::string_view name_of(DType dtype);        // in safetensors files: "F32"
std::string_view numpy_name_of(DType dtype);  // in flax files: "float32"

// Nothing when there is no such name.
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_numpy_name(std::string_view name);

// All names with commas between them, for messages.
std::string all_names();
std::string all_numpy_names();

// Nothing when a size is negative, or when the product does not fit into 63 bits. A size of 0
// excuses no other size: who computes strides would still overflow.
std::optional<size_t> byte_count(DType dtype, std::span<const int64_t> shape);

}  // namespace qna::format
