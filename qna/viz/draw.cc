#include "qna/viz/draw.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/viz/text.h"

namespace qna::viz {
namespace {

using image::Image;

constexpr Color kWhite = {255, 255, 255};
constexpr Color kLine = {96, 96, 96};
constexpr Color kLegendInk = {48, 48, 48};

void check_color(const Image& image, const char* where) {
  check_image(image, where);
  check(image.channels == 3, "{}: a picture must have 3 channels, got {}", where, image.channels);
}

Color color_in(const Range& range, Palette palette, float value) {
  const float width = range.high - range.low;
  return color_of(palette, width > 0 ? (value - range.low) / width : 0.5f);
}

}  // namespace

Image blank(int64_t height, int64_t width, Color color) {
  Image image = image::make_image(height, width, 3);
  for (int64_t i = 0; i < height * width; ++i) {
    std::copy(color.begin(), color.end(), image.pixels.begin() + 3 * i);
  }
  return image;
}

void paste(Image& canvas, const Image& image, int64_t top, int64_t left) {
  check_color(canvas, "paste");
  check_color(image, "paste");
  check(top >= 0 && left >= 0 && top + image.height <= canvas.height &&
            left + image.width <= canvas.width,
        "paste: a picture of {} x {} at ({}, {}) must lie inside the {} x {} one", image.height,
        image.width, top, left, canvas.height, canvas.width);
  for (int64_t y = 0; y < image.height; ++y) {
    std::copy_n(image.row(y), image.row_bytes(), canvas.row(top + y) + 3 * left);
  }
}

Image paint(const HeatMap& map, const Range& range, Palette palette) {
  check_heat_map(map, "paint");
  Image image = image::make_image(map.height, map.width, 3);
  uint8_t* pixel = image.pixels.data();
  for (const float value : map.values) {
    const Color color = color_in(range, palette, value);
    pixel = std::copy(color.begin(), color.end(), pixel);
  }
  return image;
}

Image overlay(const Image& image, const HeatMap& map, const Range& range, Palette palette,
              double opacity) {
  check_color(image, "overlay");
  check(opacity >= 0 && opacity <= 1, "overlay: opacity must be in [0, 1], got {}", opacity);
  check(image.height == map.height && image.width == map.width,
        "overlay: picture and heat map must be of one size, got {} x {} and {} x {}", image.height,
        image.width, map.height, map.width);
  const Image grey = image::to_channels(image, 1);
  Image mixed = paint(map, range, palette);
  for (size_t i = 0; i < mixed.pixels.size(); ++i) {
    const double value = opacity * mixed.pixels[i] + (1 - opacity) * grey.pixels[i / 3];
    mixed.pixels[i] = static_cast<uint8_t>(std::lround(value));
  }
  return mixed;
}

Image mosaic(const HeatMap& map, const Tiles& tiles, const Range& range, Palette palette) {
  check_heat_map(map, "mosaic");
  check(tiles.height >= 1 && tiles.width >= 1 && tiles.zoom >= 1,
        "mosaic: the sides of a tile and zoom must be at least 1, got {} x {} and {}", tiles.height,
        tiles.width, tiles.zoom);
  check(map.height % tiles.height == 0 && map.width % tiles.width == 0,
        "mosaic: tiles of {} x {} must fill the heat map, got {} x {}", tiles.height, tiles.width,
        map.height, map.width);
  const int64_t tile_height = tiles.height * tiles.zoom, tile_width = tiles.width * tiles.zoom;
  const Image all =
      paint(resize(map, map.height * tiles.zoom, map.width * tiles.zoom, Scaling::kNearest), range,
            palette);
  const int64_t rows = map.height / tiles.height, columns = map.width / tiles.width;
  Image out = blank(rows * (tile_height + 1) - 1, columns * (tile_width + 1) - 1, kLine);
  for (int64_t y = 0; y < all.height; ++y)
    for (int64_t column = 0; column < columns; ++column) {
      std::copy_n(all.row(y) + 3 * column * tile_width, 3 * tile_width,
                  out.row(y + y / tile_height) + 3 * column * (tile_width + 1));
    }
  return out;
}

Image with_scale_bar(const Image& image, const Range& range, Palette palette) {
  constexpr int64_t kGap = 3, kBar = 8, kBelow = 1;
  static_assert(kGap + kBar + kBelow + kTextHeight == kScaleBarHeight);
  check_color(image, "with_scale_bar");
  Image out = blank(image.height + kScaleBarHeight, image.width, kWhite);
  paste(out, image, 0, 0);

  HeatMap ramp = make_heat_map(kBar, image.width);
  for (int64_t y = 0; y < kBar; ++y)
    for (int64_t x = 0; x < ramp.width; ++x) {
      ramp.at(y, x) = (static_cast<float>(x) + 0.5f) / static_cast<float>(ramp.width);
    }
  paste(out, paint(ramp, {0, 1}, palette), image.height + kGap, 0);

  const std::string low = fmt::format("{:.3g}", range.low);
  const std::string high = fmt::format("{:.3g}", range.high);
  const int64_t top = out.height - kTextHeight;
  draw_text(out, top, 0, low, kLegendInk);
  // On a very narrow image the numbers would meet.
  if (text_width(low) + kGlyphWidth + text_width(high) <= out.width) {
    draw_text(out, top, out.width - text_width(high), high, kLegendInk);
  }
  return out;
}

}  // namespace qna::viz
