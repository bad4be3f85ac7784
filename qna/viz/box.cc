#include "qna/viz/box.h"

#include <algorithm>
#include <cmath>
#include <vector>

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

constexpr int64_t kLabelHeight = kTextHeight + 1;

// Of a label, all of one height.
struct Place {
  int64_t top = 0, left = 0, width = 0;

  bool meets(const Place& other) const {
    return std::abs(top - other.top) < kLabelHeight && left < other.left + other.width &&
           other.left < left + width;
  }
};

Place place_label(const image::Image& image, const LabelledOutline& box,
                  const std::vector<Place>& taken) {
  const auto pixels = [](double place) { return std::lround(std::clamp(place, -1e5, 1e5)); };
  Place place{.width = text_width(box.label) + 4};
  const int64_t lowest = std::max<int64_t>(0, image.height - kLabelHeight);
  // Whole inside the image, where it fits.
  place.left = std::clamp<int64_t>(pixels(box.top_left.x), 0,
                                   std::max<int64_t>(0, image.width - place.width));
  const int64_t above = pixels(box.top_left.y) - kLabelHeight;
  const int64_t inside = std::clamp<int64_t>(pixels(box.top_left.y), 0, lowest);
  std::vector<int64_t> tops;
  if (above >= 0 && above <= lowest) tops.push_back(above);
  tops.push_back(inside);
  // Then ever farther away from there.
  for (int64_t step = 1; step * kLabelHeight <= image.height; ++step) {
    for (const int64_t top : {inside + step * kLabelHeight, inside - step * kLabelHeight}) {
      if (top >= 0 && top <= lowest) tops.push_back(top);
    }
  }
  for (const int64_t top : tops) {
    place.top = top;
    const bool free = std::none_of(taken.begin(), taken.end(),
                                   [&](const Place& other) { return place.meets(other); });
    if (free) return place;
  }
  place.top = tops.front();
  return place;
}

}  // namespace

Color category_color(int64_t category) {
  constexpr auto count = static_cast<int64_t>(std::size(kColors));
  return kColors[((category % count) + count) % count];
}

void draw_boxes(image::Image& image, std::span<const LabelledOutline> boxes) {
  // Thicker on large images, which are shown smaller.
  const double width =
      std::max(1.5, static_cast<double>(std::max(image.height, image.width)) / 500);
  for (const LabelledOutline& box : boxes) {
    const Point a = box.top_left, b = box.bottom_right;
    const Point corners[] = {a, {b.x, a.y}, b, {a.x, b.y}, a};
    draw_line(image, corners, width, box.color);
  }
  std::vector<Place> taken(boxes.size());
  std::vector<Place> so_far;
  for (size_t i = boxes.size(); i-- > 0;) {
    if (boxes[i].label.empty()) continue;
    taken[i] = place_label(image, boxes[i], so_far);
    so_far.push_back(taken[i]);
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    const LabelledOutline& box = boxes[i];
    if (box.label.empty()) continue;
    fill(image, taken[i].top, taken[i].left, kLabelHeight, taken[i].width, box.color);
    draw_text(image, taken[i].top, taken[i].left + 2, box.label,
              is_light(box.color) ? Color{0, 0, 0} : Color{255, 255, 255});
  }
}

}  // namespace qna::viz
