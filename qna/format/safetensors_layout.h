// What reader and writer of safetensors files have to agree on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace qna::format {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

inline constexpr size_t kLengthBytes = sizeof(uint64_t);
inline constexpr size_t kMaxHeaderBytes = 100'000'000;  // the Python library's limit
inline constexpr char kMetadataKey[] = "__metadata__";

}  // namespace qna::format
