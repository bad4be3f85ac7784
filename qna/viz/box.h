// Boxes with labels on images.
#pragma once

#include <span>
#include <string>

#include "qna/image/image.h"
#include "qna/viz/line.h"

namespace qna::viz {

// Colours of kinds of things, the first ones easy to tell apart; they come again from the 12th on.
Color category_color(int64_t category);

struct LabelledOutline {
  Point top_left, bottom_right;
  Color color;
  std::string label = {};
};

// The outlines, and over all of them the labels on a ground of the same colour; none if it is
// empty. A label stands above its box or inside it at the top, or else where it covers no other;
// the last boxes come first in that. What lies outside the image is cut off. The image has three
// channels.
void draw_boxes(image::Image& image, std::span<const LabelledOutline> boxes);

}  // namespace qna::viz
