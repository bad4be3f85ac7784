#include "qna/predict/detection_pictures.h"

#include <fmt/format.h>

#include "qna/viz/box.h"
#include "qna/viz/draw.h"

namespace qna::predict {

DrawnBox drawn_box(const Detection& found, const std::vector<std::string>& labels) {
  const std::string name =
      labels.empty() ? fmt::format("class {}", found.label) : labels[found.label];
  return {.label = found.label,
          .box = found.box,
          .text = fmt::format("{} {:.0f} %", name, 100 * found.score)};
}

image::Image draw_boxes(const image::Image& photo, const std::vector<DrawnBox>& boxes) {
  image::Image picture = photo;
  for (const DrawnBox& each : boxes) {
    viz::draw_box(picture, {each.box[0], each.box[1]}, {each.box[2], each.box[3]},
                  viz::category_color(each.label), each.text);
  }
  return picture;
}

image::Image draw_query_attention(const image::Image& photo, const viz::HeatMap& attention,
                                  std::array<double, 2> stride, const DrawnBox& box) {
  // The map reaches beyond the photo where its sides are no multiples of the stride.
  const viz::Extent shown{static_cast<double>(photo.height) / stride[0],
                          static_cast<double>(photo.width) / stride[1]};
  const viz::HeatMap large =
      viz::resize(attention, photo.height, photo.width, viz::Scaling::kBicubic, shown);
  const viz::Range range = viz::range_of({&large, 1});
  return draw_boxes(viz::overlay(photo, large, range, viz::Palette::kViridis, 0.6), {box});
}

}  // namespace qna::predict
