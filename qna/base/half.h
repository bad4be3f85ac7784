// 16-bit storage types. Arithmetic is always float32; these only load and store.
// The conversions are branch-free integer code, so that a plain loop over a row vectorises.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace qna {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

inline float to_float(float value) { return value; }
inline double to_float(double value) { return value; }

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline float to_float(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  // Exponent and mantissa move to their float32 place; the product with 2^(127-15) mends the
  // exponent's bias and normalises subnormal numbers. Infinity and NaN keep an exponent of ones.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

template <typename T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

template <>
inline double from_float<double>(float value) {
  return value;
}

// Round to nearest, ties to even; NaN stays NaN.
template <>
inline BFloat16 from_float<BFloat16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<uint16_t>(is_nan ? quiet : rounded)};
}

template <>
inline Float16 from_float<Float16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal numbers: drop 13 mantissa bits with rounding, exponent bias 127 -> 15. A carry out of
  // the mantissa rightly raises the exponent, up to infinity.
  const uint32_t normal =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14: adding 0.5 leaves the subnormal's bits, rightly rounded, at the bottom.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  // 65520 = 2^16 - 2^4 is the first value that rounds to infinity.
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t out = magnitude < 0x38800000u ? small : (magnitude < 0x477ff000u ? normal : large);
  return Float16{static_cast<uint16_t>(sign | out)};
}

template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return from_float<T>(static_cast<float>(value));
  }
}

}  // namespace qna
