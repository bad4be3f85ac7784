// The loop of affine.cc, by Highway's run-time dispatch. In double precision without contraction of
// multiply and add, so all instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "qna/image/affine.h"

namespace qna::image {

inline constexpr int64_t kAffineMargin = 2;
// Bytes behind the last pixel that may be read: four channels are loaded where there may be one.
inline constexpr int64_t kAffineSlack = 3;

// `source` has out's size and kAffineMargin more pixels on every side.
void affine_pixels(Image& out, const uint8_t* source, const Affine& map, Filter filter,
                   const Color& fill);

}  // namespace qna::image
