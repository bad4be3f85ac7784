// Tables of a window, resized for another one as torch's bicubic interpolation does.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace qna::engine {

// [height, width, columns] -> [size[0], size[1], columns]; align_corners is false.
std::vector<float> resize_bicubic(const std::vector<float>& table, std::array<int64_t, 2> from,
                                  std::array<int64_t, 2> to, int64_t columns);

}  // namespace qna::engine
