// Auto-encoders from and to weights files, see engine/model_file.h.
#pragma once

#include "qna/checkpoint/model_file.h"
#include "qna/models/auto_encoder.h"

namespace qna::checkpoint {

struct LoadedAutoEncoder {
  models::AutoEncoder model{nullptr};  // in evaluation mode
  ModelInfo info;
};

void save_auto_encoder(const std::string& path, const models::AutoEncoder& model,
                       const ModelInfo& info, at::ScalarType dtype = at::kFloat,
                       const NamedTensors& training = {});
engine::Model serving_model(const models::AutoEncoder& model, const ModelInfo& info);
LoadedAutoEncoder load_auto_encoder(const std::string& path);

// Weights to start from, of a file of the same configuration. Any difference is a qna::Error.
void load_auto_encoder_weights(models::AutoEncoder& model, const std::string& path);

}  // namespace qna::checkpoint
