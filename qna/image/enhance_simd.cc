#include "qna/image/enhance_simd.h"

#include "qna/image/color.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/image/enhance_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qna::image {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using D8 = hn::Rebind<uint8_t, D>;
using VI = hn::Vec<DI>;
using V8 = hn::Vec<D8>;

HWY_INLINE VI Load(const uint8_t* bytes) { return hn::PromoteTo(DI(), hn::LoadU(D8(), bytes)); }

HWY_INLINE V8 Blend(VI plain, VI value, hn::Vec<D> factor) {
  const D d;
  const auto difference = hn::ConvertTo(d, hn::Sub(value, plain));
  auto mixed = hn::Add(hn::ConvertTo(d, plain), hn::Mul(factor, difference));
  // Before the conversion, which could not hold a value far outside.
  mixed = hn::Min(hn::Max(mixed, hn::Zero(d)), hn::Set(d, 255.0f));
  return hn::DemoteTo(D8(), hn::ConvertTo(DI(), mixed));
}

void BlendWithLuma(Image& image, float factor) {
  const int64_t lanes = hn::Lanes(D());
  const int64_t pixels = image.height * image.width;
  uint8_t* pixel = image.pixels.data();
  const auto alpha = hn::Set(D(), factor);
  int64_t i = 0;
  for (; i + lanes <= pixels; i += lanes, pixel += 3 * lanes) {
    V8 r8, g8, b8;
    hn::LoadInterleaved3(D8(), pixel, r8, g8, b8);
    const VI r = hn::PromoteTo(DI(), r8);
    const VI g = hn::PromoteTo(DI(), g8);
    const VI b = hn::PromoteTo(DI(), b8);
    VI sum = hn::Add(hn::Mul(r, hn::Set(DI(), kLumaRed)), hn::Mul(g, hn::Set(DI(), kLumaGreen)));
    sum = hn::Add(sum, hn::Mul(b, hn::Set(DI(), kLumaBlue)));
    const VI luma = hn::ShiftRight<16>(hn::Add(sum, hn::Set(DI(), 0x8000)));
    hn::StoreInterleaved3(Blend(luma, r, alpha), Blend(luma, g, alpha), Blend(luma, b, alpha), D8(),
                          pixel);
  }
  for (; i < pixels; ++i, pixel += 3) {
    const int grey = luma(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(grey, pixel[c], factor);
  }
}

void BlendWithSmooth(Image& out, const Image& image, float factor) {
  const int64_t lanes = hn::Lanes(D());
  const int64_t c = image.channels;
  const auto alpha = hn::Set(D(), factor);
  const VI thirteenth = hn::Set(DI(), kThirteenth);
  for (int64_t y = 1; y + 1 < image.height; ++y) {
    const uint8_t* above = image.row(y - 1);
    const uint8_t* row = image.row(y);
    const uint8_t* below = image.row(y + 1);
    uint8_t* to = out.row(y);
    const int64_t end = image.row_bytes() - c;
    int64_t i = c;
    for (; i + lanes <= end; i += lanes) {
      const VI middle = Load(row + i);
      VI sum = hn::Add(hn::ShiftLeft<2>(middle), middle);
      for (const uint8_t* line : {above + i, below + i}) {
        sum = hn::Add(sum, hn::Add(hn::Add(Load(line - c), Load(line)), Load(line + c)));
      }
      sum = hn::Add(sum, hn::Add(Load(row + i - c), Load(row + i + c)));
      sum = hn::Add(sum, hn::Set(DI(), 6));
      const VI smooth = hn::ShiftRight<16>(hn::Mul(sum, thirteenth));
      hn::StoreU(Blend(smooth, middle, alpha), D8(), to + i);
    }
    for (; i < end; ++i) {
      int sum = 4 * row[i] + 6;
      for (const uint8_t* line : {above + i, row + i, below + i}) {
        sum += line[-c] + line[0] + line[c];
      }
      to[i] = blend((sum * kThirteenth) >> 16, row[i], factor);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qna::image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::image {

HWY_EXPORT(BlendWithLuma);
HWY_EXPORT(BlendWithSmooth);

void blend_with_luma(Image& image, float factor) {
  HWY_DYNAMIC_DISPATCH(BlendWithLuma)(image, factor);
}

void blend_with_smooth(Image& out, const Image& image, float factor) {
  HWY_DYNAMIC_DISPATCH(BlendWithSmooth)(out, image, factor);
}

}  // namespace qna::image
#endif
