#include "qna/viz/box.h"

#include <algorithm>
#include <cmath>

#include "qna/viz/text.h"

namespace qna::viz {
namespace {

// Okabe and Ito's colours, which the colour-blind can tell apart, and four between them.
constexpr Color kColors[] = {{230, 159, 0}, {86, 180, 233},  {0, 158, 115},   {240, 228, 66},
                             {0, 114, 178}, {213, 94, 0},    {204, 121, 167}, {255, 255, 255},
                             {140, 86, 75}, {152, 223, 138}, {148, 103, 189}, {127, 127, 127}};

bool is_light(Color c) { return 299 * c[0] + 587 * c[1] + 114 * c[2] > 128000; }

void fill(image::Image& image, int64_t top, int64_t left, int64_t height, int64_t width,
          Color color) {
  const int64_t first = std::clamp<int64_t>(left, 0, image.width);
  const int64_t last = std::clamp<int64_t>(left + width, 0, image.width);
  for (int64_t y = std::max<int64_t>(0, top); y < std::min(top + height, image.height); ++y) {
    for (int64_t x = first; x < last; ++x) {
      std::copy(color.begin(), color.end(), image.row(y) + 3 * x);
    }
  }
}

}  // namespace

Color category_color(int64_t category) {
  constexpr auto count = static_cast<int64_t>(std::size(kColors));
  return kColors[((category % count) + count) % count];
}

void draw_box(image::Image& image, Point top_left, Point bottom_right, Color color,
              std::string_view label) {
  const Point corners[] = {
      top_left, {bottom_right.x, top_left.y}, bottom_right, {top_left.x, bottom_right.y}, top_left};
  // Thicker on large images, which are shown smaller.
  const double width =
      std::max(1.5, static_cast<double>(std::max(image.height, image.width)) / 500);
  draw_line(image, corners, width, color);
  if (label.empty()) return;
  const int64_t text_height = kTextHeight + 1;
  const int64_t text_left = std::lround(std::max(0.0, top_left.x));
  // Above the box, or inside it where there is no room.
  const int64_t above = std::lround(top_left.y) - text_height;
  const int64_t top = above >= 0 ? above : std::lround(std::max(0.0, top_left.y));
  fill(image, top, text_left, text_height, text_width(label) + 4, color);
  draw_text(image, top, text_left + 2, label,
            is_light(color) ? Color{0, 0, 0} : Color{255, 255, 255});
}

}  // namespace qna::viz
