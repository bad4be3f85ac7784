#include "qna/predict/detection_images.h"

#include <fmt/format.h>

#include <algorithm>

#include "qna/predict/classify.h"
#include "qna/viz/box.h"
#include "qna/viz/draw.h"

namespace qna::predict {

DrawnBox drawn_box(const Detection& found, const std::vector<std::string>& labels) {
  return {.label = found.label,
          .box = found.box,
          .text = fmt::format("{} {:.0f} %", class_name(found.label, labels), 100 * found.score)};
}

image::Image draw_boxes(const image::Image& image, const std::vector<DrawnBox>& boxes) {
  image::Image drawn = image;
  std::vector<viz::LabelledOutline> outlines;
  for (const DrawnBox& each : boxes) {
    outlines.push_back({{each.box[0], each.box[1]},
                        {each.box[2], each.box[3]},
                        viz::category_color(each.label),
                        each.text});
  }
  viz::draw_boxes(drawn, outlines);
  return drawn;
}

image::Image draw_query_attention(const image::Image& image, const viz::HeatMap& attention,
                                  std::array<double, 2> stride, const DrawnBox& box) {
  // The map reaches beyond the image where its sides are no multiples of the stride. Where they
  // are, rounding must not lead out of the map.
  const auto part = [](int64_t side, double stride, int64_t cells) {
    return std::min(static_cast<double>(side) / stride, static_cast<double>(cells));
  };
  const viz::Extent shown{part(image.height, stride[0], attention.height),
                          part(image.width, stride[1], attention.width)};
  const viz::HeatMap large =
      viz::resize(attention, image.height, image.width, viz::Scaling::kBicubic, shown);
  const viz::Range range = viz::range_of({&large, 1});
  return draw_boxes(viz::overlay(image, large, range, viz::Palette::kViridis, 0.6), {box});
}

}  // namespace qna::predict
