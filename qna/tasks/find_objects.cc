#include "qna/tasks/find_objects.h"

#include "qna/tasks/picture_tensor.h"

namespace qna::tasks {

FoundObjects find_objects(models::Detr& model, const image::Image& photo,
                          const data::Preprocess& preprocess, const DetectionOptions& options,
                          bool with_attention) {
  const torch::InferenceMode inference;
  const image::Image seen = data::fit(photo, preprocess);
  const models::DetrFeatures features = model->forward_features(picture_tensor(seen, preprocess));
  const models::DetrOutput output = model->forward_head(features);
  FoundObjects result;
  result.found =
      detections(output.logits[-1], output.boxes[-1], {{photo.height, photo.width}}, options)[0];
  if (!with_attention) return result;
  result.attention = model->decoder_attention(features)[0].index_select(0, result.found.queries);
  const auto stride = static_cast<double>(model->config().backbone_stride());
  result.attention_stride = {
      stride * static_cast<double>(photo.height) / static_cast<double>(seen.height),
      stride * static_cast<double>(photo.width) / static_cast<double>(seen.width)};
  return result;
}

}  // namespace qna::tasks
