// Maps of numbers, before they become colours.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace qna::viz {

// values[y * width + x], rows from top to bottom.
struct HeatMap {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> values;

  float at(int64_t y, int64_t x) const { return values[y * width + x]; }
  float& at(int64_t y, int64_t x) { return values[y * width + x]; }
};

// A map of zeros.
HeatMap make_heat_map(int64_t height, int64_t width);

// Throws qna::Error that begins with `where` unless the sizes are sane and fit the values.
void check_heat_map(const HeatMap& map, std::string_view where);

enum class Scaling {
  kNearest,  // every number stays a rectangle
  kBicubic,  // Keys' cubic with a = -0.5, widened where the map shrinks so that nothing is skipped
};

// How many rows and columns of a map are shown, from its top left corner, in fractions too: a
// network pads its input to whole patches, so its maps reach beyond the image.
struct Extent {
  double rows;
  double columns;
};

// The map, or its `shown` part, at another size.
HeatMap resize(const HeatMap& map, int64_t height, int64_t width, Scaling scaling,
               const std::optional<Extent>& shown = std::nullopt);

// The mean of maps of one size.
HeatMap mean(std::span<const HeatMap> maps);

// The numbers that get the first and the last colour.
struct Range {
  float low = 0;
  float high = 1;
};

// From the lowest to the highest number of all maps, but for the share `cut` at either end, so that
// a few outliers do not take the colours from all others. Numbers that are not finite do not count.
Range range_of(std::span<const HeatMap> maps, double cut = 0.01);

}  // namespace qna::viz
