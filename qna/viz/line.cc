#include "qna/viz/line.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"

namespace qna::viz {
namespace {

double distance_to(const Point& p, const Point& from, const Point& to) {
  const double dx = to.x - from.x, dy = to.y - from.y;
  const double length = dx * dx + dy * dy;
  const double along = ((p.x - from.x) * dx + (p.y - from.y) * dy);
  const double t = length > 0 ? std::clamp(along / length, 0.0, 1.0) : 0.0;
  return std::hypot(p.x - from.x - t * dx, p.y - from.y - t * dy);
}

// The part of every pixel in a rectangle of the image that a drawing covers.
struct Coverage {
  int64_t top, left, height, width;
  std::vector<float> part;

  // The pixels within `reach` of the points.
  Coverage(const image::Image& image, std::span<const Point> points, double reach) {
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
    for (const Point& p : points) {
      low_x = std::min(low_x, p.x), high_x = std::max(high_x, p.x);
      low_y = std::min(low_y, p.y), high_y = std::max(high_y, p.y);
    }
    const auto inside = [](double value, int64_t size) {
      return static_cast<int64_t>(std::clamp(value, 0.0, static_cast<double>(size)));
    };
    top = inside(std::floor(low_y - reach), image.height);
    left = inside(std::floor(low_x - reach), image.width);
    height = std::max<int64_t>(inside(std::ceil(high_y + reach), image.height) - top, 0);
    width = std::max<int64_t>(inside(std::ceil(high_x + reach), image.width) - left, 0);
    part.assign(static_cast<size_t>(height * width), 0.0f);
  }

  // Overlapping pieces of one line must not add up.
  void add_segment(const Point& from, const Point& to, double radius) {
    const auto clip = [](double value, int64_t size) {
      return static_cast<int64_t>(std::clamp(value, 0.0, static_cast<double>(size)));
    };
    const double reach = radius + 1, x0 = static_cast<double>(left), y0 = static_cast<double>(top);
    const int64_t first = clip(std::floor(std::min(from.y, to.y) - reach - y0), height);
    const int64_t last = clip(std::ceil(std::max(from.y, to.y) + reach - y0), height);
    const int64_t begin = clip(std::floor(std::min(from.x, to.x) - reach - x0), width);
    const int64_t end = clip(std::ceil(std::max(from.x, to.x) + reach - x0), width);
    for (int64_t y = first; y < last; ++y)
      for (int64_t x = begin; x < end; ++x) {
        const Point middle{x0 + static_cast<double>(x) + 0.5, y0 + static_cast<double>(y) + 0.5};
        const double covered = radius + 0.5 - distance_to(middle, from, to);
        float& known = part[static_cast<size_t>(y * width + x)];
        known = std::max(known, static_cast<float>(std::clamp(covered, 0.0, 1.0)));
      }
  }

  void paint(image::Image& image, Color color) const {
    for (int64_t y = 0; y < height; ++y) {
      uint8_t* pixel = image.row(top + y) + 3 * left;
      for (int64_t x = 0; x < width; ++x, pixel += 3) {
        const float share = part[static_cast<size_t>(y * width + x)];
        for (size_t c = 0; c < 3; ++c) {
          pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + share * (color[c] - pixel[c])));
        }
      }
    }
  }
};

void check_canvas(const image::Image& image, const char* where) {
  check_image(image, where);
  check(image.channels == 3, "{}: a picture must have 3 channels, got {}", where, image.channels);
}

}  // namespace

void draw_line(image::Image& image, std::span<const Point> points, double width, Color color) {
  check_canvas(image, "draw_line");
  if (points.empty()) return;
  Coverage coverage(image, points, width / 2 + 1);
  coverage.add_segment(points[0], points[0], width / 2);
  for (size_t i = 1; i < points.size(); ++i) {
    coverage.add_segment(points[i - 1], points[i], width / 2);
  }
  coverage.paint(image, color);
}

}  // namespace qna::viz
