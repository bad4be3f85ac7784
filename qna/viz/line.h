// Lines and discs with smooth edges.
#pragma once

#include <span>
#include <vector>

#include "qna/image/image.h"
#include "qna/viz/palette.h"

namespace qna::viz {

// In pixels from the picture's top left corner: the middle of the first pixel is (0.5, 0.5).
struct Point {
  double x, y;
};

// A line through all points with round ends and corners; what lies outside the picture is cut off.
// The picture has three channels.
void draw_line(image::Image& image, std::span<const Point> points, double width, Color color);

void draw_disc(image::Image& image, Point center, double radius, Color color);

// The line in pieces of length `dash`, with gaps of length `gap` between them.
std::vector<std::vector<Point>> dashes(std::span<const Point> points, double dash, double gap);

}  // namespace qna::viz
