// A box as COCO writes it: the left upper corner, then the size, in pixels.
#pragma once

#include <optional>
#include <string>

namespace qna::coco {

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  double area() const { return width * height; }
  bool operator==(const Box&) const = default;
};

// The part of the box that lies in an image of this size, for training; nothing where no area is
// left. The evaluation takes boxes as they are.
std::optional<Box> clip(const Box& box, double image_width, double image_height);

// "[1, 2.5, 30, 40]"
std::string to_text(const Box& box);

}  // namespace qna::coco
