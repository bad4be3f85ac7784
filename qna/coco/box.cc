#include "qna/coco/box.h"

#include <fmt/format.h>

#include <algorithm>

namespace qna::coco {

std::optional<Box> clip(const Box& box, double image_width, double image_height) {
  const double left = std::max(box.x, 0.0);
  const double top = std::max(box.y, 0.0);
  const double right = std::min(box.x + box.width, image_width);
  const double bottom = std::min(box.y + box.height, image_height);
  const Box inside{left, top, right - left, bottom - top};
  if (inside.width <= 0 || inside.height <= 0) return std::nullopt;
  return inside;
}

std::string to_text(const Box& box) {
  return fmt::format("[{}, {}, {}, {}]", box.x, box.y, box.width, box.height);
}

}  // namespace qna::coco
