#include "qna/image/affine_simd.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/image/affine_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qna::image {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The channels of one pixel side by side: where vectors are shorter, in several steps.
using D = hn::CappedTag<double, 4>;
using DI = hn::Rebind<int32_t, D>;
using D8 = hn::Rebind<uint8_t, D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Load(const uint8_t* bytes) { return hn::PromoteTo(DI(), hn::LoadU(D8(), bytes)); }
HWY_INLINE V ToDouble(VI v) { return hn::PromoteTo(D(), v); }

// The two filters, each along a row of bytes and down a column of what came out. A fraction of 0
// gives the pixel itself, kMiddle taps after the first; see affine_pixels.
struct Bilinear {
  static constexpr int kTaps = 2;
  static constexpr int kMiddle = 0;

  static HWY_INLINE V Row(const uint8_t* p, int64_t step, V t) {
    const VI v0 = Load(p);
    const VI v1 = Load(p + step);
    return hn::Add(ToDouble(v0), hn::Mul(ToDouble(hn::Sub(v1, v0)), t));
  }
  static HWY_INLINE V Column(const V* v, V t) {
    return hn::Add(v[0], hn::Mul(hn::Sub(v[1], v[0]), t));
  }
};

struct Bicubic {
  static constexpr int kTaps = 4;
  static constexpr int kMiddle = 1;

  static HWY_INLINE V Cubic(V p1, V p2, V p3, V p4, V t) {
    return hn::Add(p1, hn::Mul(t, hn::Add(p2, hn::Mul(t, hn::Add(p3, hn::Mul(t, p4))))));
  }
  // Sums of bytes are exact, as integers and in double alike.
  static HWY_INLINE V Row(const uint8_t* p, int64_t step, V t) {
    const VI v0 = Load(p);
    const VI v1 = Load(p + step);
    const VI v2 = Load(p + 2 * step);
    const VI v3 = Load(p + 3 * step);
    const VI left = hn::Sub(v0, v1);
    const VI right = hn::Sub(v2, v3);
    return Cubic(ToDouble(v1), ToDouble(hn::Sub(v2, v0)),
                 ToDouble(hn::Add(hn::Add(left, left), right)),
                 ToDouble(hn::Neg(hn::Add(left, right))), t);
  }
  static HWY_INLINE V Column(const V* v, V t) {
    const V twice = hn::Mul(hn::Set(D(), 2.0), hn::Sub(v[0], v[1]));
    return Cubic(v[1], hn::Sub(v[2], v[0]), hn::Sub(hn::Add(twice, v[2]), v[3]),
                 hn::Add(hn::Sub(hn::Sub(v[1], v[0]), v[2]), v[3]), t);
  }
};

template <typename Kernel, int kChannels>
void AffinePixels(Image& out, const uint8_t* source, const Affine& map, const Color& fill) {
  const int64_t stride = (out.width + 2 * kAffineMargin) * kChannels;
  const double width = static_cast<double>(out.width);
  const double height = static_cast<double>(out.height);
  const int64_t lanes = hn::Lanes(D());
  // The first tap of the pixel at (0, 0).
  source += (kAffineMargin - Kernel::kMiddle) * (stride + kChannels);
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x, to += kChannels) {
      const double xx = static_cast<double>(x) + 0.5;
      const double yy = static_cast<double>(y) + 0.5;
      double u = map.a * xx + map.b * yy + map.c;
      double v = map.d * xx + map.e * yy + map.f;
      if (!(u >= 0 && u < width && v >= 0 && v < height)) {
        for (int c = 0; c < kChannels; ++c) to[c] = fill[c];
        continue;
      }
      u -= 0.5;
      v -= 0.5;
      const double left = std::floor(u);
      const double top = std::floor(v);
      const double du = u - left;
      const double dv = v - top;
      const uint8_t* p =
          source + static_cast<int64_t>(top) * stride + static_cast<int64_t>(left) * kChannels;
      const V t = hn::Set(D(), du);
      uint8_t bytes[8];
      for (int64_t c = 0; c < kChannels; c += lanes) {
        V value;
        if (dv == 0) {
          value = Kernel::Row(p + Kernel::kMiddle * stride + c, kChannels, t);
        } else {
          V rows[Kernel::kTaps];
          if (du == 0) {
            for (int k = 0; k < Kernel::kTaps; ++k) {
              rows[k] = ToDouble(Load(p + k * stride + Kernel::kMiddle * kChannels + c));
            }
          } else {
            for (int k = 0; k < Kernel::kTaps; ++k) {
              rows[k] = Kernel::Row(p + k * stride + c, kChannels, t);
            }
          }
          value = Kernel::Column(rows, hn::Set(D(), dv));
        }
        // Rounds towards 0, then saturates.
        hn::StoreU(hn::DemoteTo(D8(), hn::DemoteTo(DI(), value)), D8(), bytes + c);
      }
      std::memcpy(to, bytes, kChannels);
    }
}

void AffineBilinear(Image& out, const uint8_t* source, const Affine& map, const Color& fill) {
  if (out.channels == 1) return AffinePixels<Bilinear, 1>(out, source, map, fill);
  AffinePixels<Bilinear, 3>(out, source, map, fill);
}

void AffineBicubic(Image& out, const uint8_t* source, const Affine& map, const Color& fill) {
  if (out.channels == 1) return AffinePixels<Bicubic, 1>(out, source, map, fill);
  AffinePixels<Bicubic, 3>(out, source, map, fill);
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::image {

HWY_EXPORT(AffineBilinear);
HWY_EXPORT(AffineBicubic);

void affine_pixels(Image& out, const uint8_t* source, const Affine& map, Filter filter,
                   const Color& fill) {
  if (filter == Filter::kBilinear) {
    HWY_DYNAMIC_DISPATCH(AffineBilinear)(out, source, map, fill);
  } else {
    HWY_DYNAMIC_DISPATCH(AffineBicubic)(out, source, map, fill);
  }
}

}  // namespace qna::image
#endif
