// Tables of a window, resized for another one as torch's bicubic interpolation does.
#pragma once

#include <array>
#include <cstdint>

namespace qna::engine {

// [from[0], from[1], columns] -> [to[0], to[1], columns]; align_corners is false.
void resize_bicubic(float* out, const float* table, std::array<int64_t, 2> from,
                    std::array<int64_t, 2> to, int64_t columns);

}  // namespace qna::engine
