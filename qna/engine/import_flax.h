// The authors' checkpoints (flax msgpack) as tensors of our networks.
#pragma once

#include <string>
#include <vector>

#include "qna/config/qna_vit.h"
#include "qna/format/flax.h"
#include "qna/format/safetensors.h"

namespace qna::engine {

struct FlaxTensor {
  std::string flax_name;  // "params.QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk"
  std::string name;       // "stages.0.blocks.0.qna.key_weight"
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct FlaxImport {
  std::vector<FlaxTensor> tensors;   // all of them, in the network's order
  std::vector<std::string> ignored;  // what is no weight: optimiser state, step

  // What write_model_file() takes: also the counts, which their checkpoints do not have. Valid as
  // long as this is.
  std::vector<format::TensorView> views() const;

  std::vector<std::string> counts = {};  // names of those
};

// Throws qna::Error that lists what is missing, left over or of another shape.
FlaxImport import_flax(const format::FlaxState& state, const config::QnAViTConfig& config,
                       const std::string& origin);

// Which of our tensors the arrays of `state` (params and batch_stats, or gradients of params by the
// same names) become.
std::vector<FlaxTensor> map_flax(const format::FlaxState& state, const config::QnAViTConfig& config,
                                 const std::string& origin);

// The name of the listed model whose tensors these are; throws if there is none.
std::string recognize_flax(const format::FlaxState& state, const std::string& origin);

}  // namespace qna::engine
