#include "qna/format/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace qna::format {
namespace {

using Sizes = std::vector<int64_t>;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(DType, NamesLeadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_EQ(dtype_from_numpy_name(numpy_name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_numpy_name("F32"), std::nullopt);
}

TEST(DType, AllNames) {
  EXPECT_EQ(all_names(), "BOOL, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64");
  EXPECT_EQ(all_numpy_names(),
            "bool, uint8, int8, int16, uint16, float16, bfloat16, int32, uint32, float32, "
            "float64, int64, uint64");
}

TEST(ByteCount, IsTheProduct) {
  EXPECT_EQ(byte_count(DType::kF32, Sizes{}), 4u);
  EXPECT_EQ(byte_count(DType::kF32, Sizes{2, 3}), 24u);
  EXPECT_EQ(byte_count(DType::kBF16, Sizes{7}), 14u);
  EXPECT_EQ(byte_count(DType::kF64, Sizes{5, 0, 5}), 0u);
  EXPECT_EQ(byte_count(DType::kU8, Sizes{kLargest}), static_cast<size_t>(kLargest));
}

TEST(ByteCount, RefusesWhatDoesNotFit) {
  EXPECT_EQ(byte_count(DType::kU8, Sizes{-1}), std::nullopt);
  EXPECT_EQ(byte_count(DType::kU8, Sizes{-2, -3}), std::nullopt);
  EXPECT_EQ(byte_count(DType::kF32, Sizes{kLargest}), std::nullopt);
  EXPECT_EQ(byte_count(DType::kU8, Sizes{int64_t{1} << 32, int64_t{1} << 31}), std::nullopt);
  // The product in 64 bits would be 0.
  EXPECT_EQ(byte_count(DType::kU8, Sizes{int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(byte_count(DType::kU8, Sizes{0, kLargest, kLargest}), std::nullopt);
  EXPECT_EQ(byte_count(DType::kU8, Sizes{kLargest, kLargest, 0}), std::nullopt);
}

}  // namespace
}  // namespace qna::format
