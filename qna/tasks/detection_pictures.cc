#include "qna/tasks/detection_pictures.h"

#include <fmt/format.h>

#include "qna/viz/box.h"
#include "qna/viz/draw.h"

namespace qna::tasks {

DrawnBox drawn_box(const Detections& found, int64_t index, const std::vector<std::string>& labels) {
  DrawnBox drawn{.label = found.labels[index].item<int64_t>(), .box = {}, .text = {}};
  for (int64_t i = 0; i < 4; ++i) drawn.box[i] = found.boxes[index][i].item<double>();
  const std::string name =
      labels.empty() ? fmt::format("class {}", drawn.label) : labels[drawn.label];
  drawn.text = fmt::format("{} {:.0f} %", name, 100 * found.scores[index].item<double>());
  return drawn;
}

image::Image draw_boxes(const image::Image& photo, const std::vector<DrawnBox>& boxes) {
  image::Image picture = photo;
  for (const DrawnBox& each : boxes) {
    viz::draw_box(picture, {each.box[0], each.box[1]}, {each.box[2], each.box[3]},
                  viz::category_color(each.label), each.text);
  }
  return picture;
}

image::Image draw_query_attention(const image::Image& photo, const torch::Tensor& attention,
                                  std::array<double, 2> stride, const DrawnBox& box) {
  viz::HeatMap map = viz::make_heat_map(attention.size(0), attention.size(1));
  const torch::Tensor values = attention.to(torch::kFloat).contiguous();
  std::copy_n(values.const_data_ptr<float>(), values.numel(), map.values.begin());
  // The map reaches beyond the photo where its sides are no multiples of the stride.
  const viz::Extent shown{static_cast<double>(photo.height) / stride[0],
                          static_cast<double>(photo.width) / stride[1]};
  const viz::HeatMap large =
      viz::resize(map, photo.height, photo.width, viz::Scaling::kBicubic, shown);
  const viz::Range range = viz::range_of({&large, 1});
  return draw_boxes(viz::overlay(photo, large, range, viz::Palette::kViridis, 0.6), {box});
}

}  // namespace qna::tasks
