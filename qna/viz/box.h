// Boxes with labels on images.
#pragma once

#include <string_view>

#include "qna/image/image.h"
#include "qna/viz/line.h"

namespace qna::viz {

// Colours of kinds of things, the first ones easy to tell apart; they come again from the 12th on.
Color category_color(int64_t category);

// The outline, and the label in its upper left corner on a ground of the same colour; none if it is
// empty. What lies outside the image is cut off. The image has three channels.
void draw_box(image::Image& image, Point top_left, Point bottom_right, Color color,
              std::string_view label = {});

}  // namespace qna::viz
