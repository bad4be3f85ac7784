// The 16-bit types over all their bit patterns, and rounding to them at every boundary.
#include "qna/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace qna {
namespace {

// What the bits mean, by the formats' definition, computed in double.
double meaning(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
}

template <typename T>
struct Format;
template <>
struct Format<BFloat16> {
  static constexpr int kExponentBits = 8, kMantissaBits = 7;
};
template <>
struct Format<Float16> {
  static constexpr int kExponentBits = 5, kMantissaBits = 10;
};

template <typename T>
class Half : public ::testing::Test {
 protected:
  static double value_of(uint32_t bits) {
    return meaning(bits, Format<T>::kExponentBits, Format<T>::kMantissaBits);
  }
  static constexpr uint32_t kInfinity = ((1u << Format<T>::kExponentBits) - 1)
                                        << Format<T>::kMantissaBits;
  static T make(uint32_t bits) { return T{static_cast<uint16_t>(bits)}; }
};
using Types = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(Half, Types);

TYPED_TEST(Half, EveryPatternToFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = this->value_of(bits);
    const float actual = to_float(this->make(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(Half, EveryPatternToFloatAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint32_t back = from_float<TypeParam>(to_float(this->make(bits))).bits;
    if (std::isnan(this->value_of(bits))) {
      ASSERT_TRUE(std::isnan(this->value_of(back))) << bits;
      ASSERT_EQ(back & 0x8000u, bits & 0x8000u) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// Between each number and the next: what is below the middle goes down, what is above goes up, the
// middle itself to the even one. This covers subnormal numbers, zero and the step to infinity.
TYPED_TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < this->kInfinity; ++bits) {
    const double low = this->value_of(bits);
    // Above the largest finite number the middle is where the next number would be.
    const double high =
        bits + 1 < this->kInfinity ? this->value_of(bits + 1) : 2 * low - this->value_of(bits - 1);
    const double middle = (low + high) / 2;  // exact in double, and a float32 (at least 1 bit more)
    const float tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const float infinity = std::numeric_limits<float>::infinity();
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float direction = sign != 0 ? -1.0f : 1.0f;
      const auto rounded = [&](float magnitude) {
        return static_cast<uint32_t>(from_float<TypeParam>(direction * magnitude).bits);
      };
      ASSERT_EQ(rounded(tie), even | sign);
      ASSERT_EQ(rounded(std::nextafter(tie, 0.0f)), bits | sign);
      ASSERT_EQ(rounded(std::nextafter(tie, infinity)), (bits + 1) | sign);
    }
  }
}

TYPED_TEST(Half, Overflow) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(from_float<TypeParam>(infinity).bits, this->kInfinity);
  EXPECT_EQ(from_float<TypeParam>(-infinity).bits, this->kInfinity | 0x8000u);
  EXPECT_EQ(from_float<TypeParam>(std::numeric_limits<float>::max()).bits, this->kInfinity);
  EXPECT_EQ(from_float<TypeParam>(std::numeric_limits<float>::lowest()).bits,
            this->kInfinity | 0x8000u);
}

// A NaN whose payload lies in the bits that are dropped must not become infinity, nor may rounding
// carry it into zero.
TYPED_TEST(Half, NaNStaysNaN) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f80ffffu, 0x7fbfffffu,
                              0x7f801fffu, 0xff800001u, 0xffffffffu, 0xffc00000u}) {
    const TypeParam half = from_float<TypeParam>(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(this->value_of(half.bits))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(to_float(half))) << std::hex << bits;
  }
}

#ifdef __FLT16_MAX__
// The compiler's own conversion, over random bit patterns of float32.
TEST(Float16, AgreesWithTheCompiler) {
  std::mt19937 random(16);
  for (int round = 0; round < 1000000; ++round) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const _Float16 expected = static_cast<_Float16>(value);
    const Float16 actual = from_float<Float16>(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(actual)));
      continue;
    }
    uint16_t expected_bits;
    std::memcpy(&expected_bits, &expected, sizeof(expected_bits));
    ASSERT_EQ(actual.bits, expected_bits) << value;
    ASSERT_EQ(to_float(actual), static_cast<float>(expected)) << value;
  }
}
#endif

TEST(Float32, IsLeftAlone) {
  EXPECT_EQ(from_float<float>(1.1f), 1.1f);
  EXPECT_EQ(to_float(1.1f), 1.1f);
  EXPECT_EQ(to_float(1.1), 1.1);
  EXPECT_EQ(from_float<double>(1.5f), 1.5);
}

}  // namespace
}  // namespace qna
