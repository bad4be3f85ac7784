// The auto-encoders, packed: models/auto_encoder.h says what they compute.
#pragma once

#include "qna/config/auto_encoder.h"
#include "qna/engine/qna_layer.h"
#include "qna/engine/qna_vit.h"

namespace qna::engine {

class AutoEncoder {
 public:
  AutoEncoder(const Tensors& tensors, const config::AutoEncoderConfig& config);

  // out [batch, height, width, channels].
  void run(const ImageBatch& images, float* out, Worker& worker, Visitor* visitor) const;
  size_t bytes() const;

 private:
  class Layer;
  class ConvLayer;
  class QnAResample;

  config::AutoEncoderConfig config_;
  kernels::PackedWeights stem_, head_;
  std::vector<std::shared_ptr<const Layer>> encoder_, decoder_;
};

}  // namespace qna::engine
