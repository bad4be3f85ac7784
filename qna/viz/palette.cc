#include "qna/viz/palette.h"

#include <algorithm>
#include <cmath>

namespace qna::viz {
namespace {

// Red, green, blue as 0xRRGGBB: entries 0, 16, 32, ... 255 of the maps that Stefan van der Walt and
// Nathaniel Smith made for matplotlib (CC0, https://bids.github.io/colormap). With straight lines
// between them, no channel is off by more than 7 of 255.
constexpr int kSteps = 16;
using Table = std::array<uint32_t, kSteps + 1>;
constexpr Table kViridis = {0x440154, 0x48186a, 0x472d7b, 0x424086, 0x3b528b, 0x33638d,
                            0x2c728e, 0x26828e, 0x21918c, 0x1f9f88, 0x27ad81, 0x3dbc74,
                            0x5cc863, 0x81d34d, 0xaadc32, 0xd5e21a, 0xfde725};
constexpr Table kInferno = {0x000004, 0x0b0724, 0x210c4a, 0x3d0965, 0x57106e, 0x71196e,
                            0x8a226a, 0xa32c61, 0xbc3754, 0xd04545, 0xe35933, 0xf1711f,
                            0xf98c0a, 0xfcaa0f, 0xf9c932, 0xf2e865, 0xfcffa4};

constexpr uint8_t channel(uint32_t color, int c) { return color >> (16 - 8 * c) & 0xff; }

}  // namespace

Color color_of(Palette palette, float t) {
  const Table& table = palette == Palette::kViridis ? kViridis : kInferno;
  const float place = t > 0 ? std::min(t, 1.0f) * kSteps : 0;  // NaN is not above 0
  const int step = std::min(static_cast<int>(place), kSteps - 1);
  const float part = place - static_cast<float>(step);
  Color color;
  for (int c = 0; c < 3; ++c) {
    const float from = channel(table[step], c), to = channel(table[step + 1], c);
    color[c] = static_cast<uint8_t>(std::lround(from + part * (to - from)));
  }
  return color;
}

}  // namespace qna::viz
