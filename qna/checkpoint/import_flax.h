// The authors' checkpoints (flax msgpack) as our models.
#pragma once

#include <string>
#include <vector>

#include "qna/format/flax.h"
#include "qna/models/qna_vit.h"

namespace qna::checkpoint {

struct ImportedTensor {
  std::string flax_name;  // "QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk"
  std::string name;       // "stages.0.blocks.0.qna.key_weight"
  std::vector<int64_t> sizes;
};

struct FlaxImport {
  models::QnAViT model{nullptr};        // in evaluation mode
  std::vector<ImportedTensor> tensors;  // all of them, in the model's order
  std::vector<std::string> ignored;     // what is no weight: optimiser state, step
};

// Throws qna::Error that lists what is missing, left over or of another shape.
FlaxImport import_flax(const format::FlaxState& state, const models::QnAViTConfig& config,
                       const std::string& origin);

// Which of our tensors the arrays of `state` (params and batch_stats, or gradients of params by the
// same names) become: the value for each name of the model.
std::vector<std::pair<ImportedTensor, torch::Tensor>> map_flax(const format::FlaxState& state,
                                                               const models::QnAViT& model,
                                                               const std::string& origin);

// The name of the listed model whose tensors these are; throws if there is none.
std::string recognize_flax(const format::FlaxState& state, const std::string& origin);

}  // namespace qna::checkpoint
