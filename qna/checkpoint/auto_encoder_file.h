// An auto-encoder on disk: a safetensors file whose metadata says all that it needs.
#pragma once

#include "qna/checkpoint/model_file.h"
#include "qna/models/auto_encoder.h"

namespace qna::checkpoint {

struct AutoEncoderInfo {
  std::string name = {};
  data::Preprocess preprocess = {};
  nlohmann::json training = {};
};

struct LoadedAutoEncoder {
  models::AutoEncoder model{nullptr};  // in evaluation mode
  AutoEncoderInfo info;
};

// Whether the file is an auto-encoder's: its metadata has "kind": "auto-encoder".
bool is_auto_encoder_file(const std::string& path);

void save_auto_encoder(const std::string& path, const models::AutoEncoder& model,
                       const AutoEncoderInfo& info, at::ScalarType dtype = at::kFloat,
                       const NamedTensors& training = {});
LoadedAutoEncoder load_auto_encoder(const std::string& path);

// Weights to start from, of a file of the same configuration. Any difference is a qna::Error.
void load_auto_encoder_weights(models::AutoEncoder& model, const std::string& path);

}  // namespace qna::checkpoint
