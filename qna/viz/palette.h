// From numbers to colours whose lightness grows evenly, so that equal steps look equal, in grey and
// to the colour-blind too.
#pragma once

#include <array>
#include <cstdint>

namespace qna::viz {

using Color = std::array<uint8_t, 3>;  // red, green, blue

enum class Palette {
  kViridis,  // violet, green, yellow: no black, so what lies under it stays visible
  kInferno,  // black, red, yellow
};

// The colour of t, from 0 to 1; beyond it, the first and the last. NaN has the first.
Color color_of(Palette palette, float t);

}  // namespace qna::viz
