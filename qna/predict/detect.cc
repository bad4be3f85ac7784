#include "qna/predict/detect.h"

#include "qna/predict/input.h"

namespace qna::predict {
namespace {

class DecoderLook : public engine::Visitor {
 public:
  bool wants_decoder_attention() override { return true; }
  void decoder_attention(const engine::MapView& weights, int64_t height, int64_t width) override {
    height_ = height;
    width_ = width;
    weights_.assign(weights.data, weights.data + weights.height * weights.width);
  }

  viz::HeatMap map_of(int64_t query) const {
    viz::HeatMap map = viz::make_heat_map(height_, width_);
    const auto first = weights_.begin() + query * height_ * width_;
    std::copy(first, first + height_ * width_, map.values.begin());
    return map;
  }

 private:
  int64_t height_ = 0, width_ = 0;
  std::vector<float> weights_;  // [queries, height, width]
};

}  // namespace

FoundObjects find_objects(const engine::Model& model, const image::Image& image,
                          const config::Preprocess& preprocess, const DetectionOptions& options,
                          engine::Context& context, bool with_attention) {
  const config::DetrConfig& config = model.detector();
  const image::Image seen = data::fit(image, preprocess);
  const Input input(seen, preprocess);
  std::vector<float> logits(config.queries * (config.classes + 1));
  std::vector<float> boxes(config.queries * 4);
  DecoderLook look;
  model.detect(input.images(), {.logits = logits.data(), .boxes = boxes.data()}, context,
               with_attention ? &look : nullptr);
  FoundObjects result;
  result.found = std::move(detections({.batch = 1,
                                       .queries = config.queries,
                                       .classes = config.classes,
                                       .logits = logits.data(),
                                       .boxes = boxes.data()},
                                      {{image.height, image.width}}, options)
                               .front());
  if (!with_attention) return result;
  for (const Detection& found : result.found) result.attention.push_back(look.map_of(found.query));
  const auto stride = static_cast<double>(config.backbone_stride());
  result.attention_stride = {
      stride * static_cast<double>(image.height) / static_cast<double>(seen.height),
      stride * static_cast<double>(image.width) / static_cast<double>(seen.width)};
  return result;
}

}  // namespace qna::predict
