// Lines with smooth edges.
#pragma once

#include <span>

#include "qna/image/image.h"
#include "qna/viz/palette.h"

namespace qna::viz {

// In pixels from the image's top left corner: the middle of the first pixel is (0.5, 0.5).
struct Point {
  double x, y;
};

// A line through all points with round ends and corners; what lies outside the image is cut off.
// The image has three channels.
void draw_line(image::Image& image, std::span<const Point> points, double width, Color color);

}  // namespace qna::viz
