// Images from numbers, and images on images. All of them have three channels.
#pragma once

#include "qna/image/image.h"
#include "qna/viz/heat_map.h"
#include "qna/viz/palette.h"

namespace qna::viz {

// An image of one colour.
image::Image blank(int64_t height, int64_t width, Color color);

// Copies an image onto a larger one; it must lie inside.
void paste(image::Image& canvas, const image::Image& image, int64_t top, int64_t left);

// One pixel per number. Numbers beyond the range have the first and the last colour.
image::Image paint(const HeatMap& map, const Range& range, Palette palette);

// The map's colours over the image in grey, so that all colour is the map's. Both have one size.
// opacity: 0 is the image alone, 1 the map alone.
image::Image overlay(const image::Image& image, const HeatMap& map, const Range& range,
                     Palette palette, double opacity);

struct Tiles {
  int64_t height;    // in numbers
  int64_t width;     // in numbers
  int64_t zoom = 1;  // a number becomes zoom x zoom pixels
};

// A map that is made of tiles, with a line of one pixel between them.
image::Image mosaic(const HeatMap& map, const Tiles& tiles, const Range& range, Palette palette);

// The image and below it, as wide, its colours from range.low to range.high with the numbers at
// both ends.
image::Image with_scale_bar(const image::Image& image, const Range& range, Palette palette);

// What with_scale_bar adds to an image's height.
inline constexpr int64_t kScaleBarHeight = 25;

}  // namespace qna::viz
