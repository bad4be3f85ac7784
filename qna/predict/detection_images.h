// Images of what a detector found.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "qna/image/image.h"
#include "qna/predict/detections.h"
#include "qna/viz/heat_map.h"

namespace qna::predict {

struct DrawnBox {
  int64_t label = 0;                         // decides the colour
  std::array<double, 4> box = {0, 0, 0, 0};  // left, top, right, bottom in pixels
  std::string text;                          // "cat 93 %"; may be empty
};

// With its class and score as text.
DrawnBox drawn_box(const Detection& found, const std::vector<std::string>& labels);

// The image, of three channels, with the boxes; the last ones lie on top.
image::Image draw_boxes(const image::Image& image, const std::vector<DrawnBox>& boxes);

// The image in grey under the attention of one object query, with its box; see FoundObjects.
image::Image draw_query_attention(const image::Image& image, const viz::HeatMap& attention,
                                  std::array<double, 2> stride, const DrawnBox& box);

}  // namespace qna::predict
