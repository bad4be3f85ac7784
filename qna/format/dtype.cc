#include "qna/format/dtype.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace qna::format {
namespace {

struct Row {
  DType dtype;
  size_t size;
  std::string_view name;
  std::string_view numpy_name;
};

constexpr Row kRows[] = {
    {DType::kBool, 1, "BOOL", "bool"},     {DType::kU8, 1, "U8", "uint8"},
    {DType::kI8, 1, "I8", "int8"},         {DType::kI16, 2, "I16", "int16"},
    {DType::kU16, 2, "U16", "uint16"},     {DType::kF16, 2, "F16", "float16"},
    {DType::kBF16, 2, "BF16", "bfloat16"}, {DType::kI32, 4, "I32", "int32"},
    {DType::kU32, 4, "U32", "uint32"},     {DType::kF32, 4, "F32", "float32"},
    {DType::kF64, 8, "F64", "float64"},    {DType::kI64, 8, "I64", "int64"},
    {DType::kU64, 8, "U64", "uint64"},
};

// A row stands at its dtype's number, and sizes never fall.
static_assert([] {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
    if (i > 0 && kRows[i].size < kRows[i - 1].size) return false;
  }
  return true;
}());

using Name = std::string_view Row::*;

const Row& row_of(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

std::optional<DType> find(Name kind, std::string_view name) {
  const auto row = std::ranges::find(kRows, name, kind);
  return row == std::end(kRows) ? std::nullopt : std::optional(row->dtype);
}

std::string join(Name kind) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.*kind);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

size_t size_of(DType dtype) { return row_of(dtype).size; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
std::string_view numpy_name_of(DType dtype) { return row_of(dtype).numpy_name; }

std::optional<DType> dtype_from_name(std::string_view name) { return find(&Row::name, name); }
std::optional<DType> dtype_from_numpy_name(std::string_view name) {
  return find(&Row::numpy_name, name);
}

std::string all_names() { return join(&Row::name); }
std::string all_numpy_names() { return join(&Row::numpy_name); }

std::optional<size_t> byte_count(DType dtype, std::span<const int64_t> shape) {
  auto bytes = static_cast<int64_t>(size_of(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : static_cast<size_t>(bytes);
}

}  // namespace qna::format
