// The two passes of a resize, by Highway's run-time dispatch. The arithmetic is in integers, so all
// instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "qna/image/image.h"
#include "qna/image/resize_weights.h"

namespace qna::image {

// out[y] = resized row[first_row + y] of `image`; out.width == columns.spans.size().
void resize_columns(Image& out, const Image& image, int64_t first_row,
                    const ResizeWeights& columns);

// The same for columns; out.height == rows.spans.size(), and the widths are equal.
void resize_rows(Image& out, const Image& image, const ResizeWeights& rows);

}  // namespace qna::image
