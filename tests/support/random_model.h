// Shared by tests: networks with random weights.
#pragma once

#include <memory>
#include <string>

#include "qna/engine/model.h"
#include "qna/engine/random_weights.h"

namespace qna::testing {

using engine::random_model_bytes;

inline engine::Model random_model(const config::NetworkConfig& config,
                                  const engine::ModelInfo& info = {}, uint32_t seed = 1) {
  return engine::Model(engine::ModelFile::parse(
      std::make_shared<const std::string>(random_model_bytes(config, info, seed)), "random model"));
}

// Small ones, of each kind.
inline config::QnAViTConfig small_classifier(int64_t classes = 3) {
  return {.image_size = {16, 16},
          .classes = classes,
          .base_dim = 8,
          .patch_size = 2,
          .stages = {{.qna_blocks = 1, .qna_heads = 2}, {.attention_blocks = 1, .qna_heads = 2}}};
}
inline config::DetrConfig small_detector(int64_t classes = 3) {
  return {.backbone = small_classifier(/*classes=*/0),
          .hidden = 16,
          .heads = 2,
          .encoder_blocks = 1,
          .decoder_blocks = 2,
          .feedforward = 16,
          .queries = 5,
          .classes = classes};
}
inline config::AutoEncoderConfig small_auto_encoder() { return {.widths = {8, 8, 16}, .heads = 2}; }

// Images of 16 x 16 pixels; a detector's have 16 at their shorter side.
inline config::Preprocess small_preprocess(bool crop = true) {
  config::Preprocess preprocess;
  preprocess.resize = 16;
  preprocess.crop = crop ? std::array<int64_t, 2>{16, 16} : std::array<int64_t, 2>{0, 0};
  return preprocess;
}

}  // namespace qna::testing
