// Where a classifier, or the backbone of a detector, looks.
#pragma once

#include <string>
#include <vector>

#include "qna/engine/model.h"

namespace qna::predict {

struct AttentionOptions {
  std::vector<std::string> layers;  // as engine::find_attention_layer() knows them
  // The longer side of all kernels side by side, in weights: where it would be longer, only those
  // of every n-th window are made. 0: none.
  int64_t kernel_side = 0;
  bool scores = false;  // also what the softmax is taken of
};

// Runs the network up to the last of the layers; the results stand in the network's order.
std::vector<engine::LayerAttention> attention_of(const engine::Model& model,
                                                 const engine::Images& images,
                                                 const AttentionOptions& options,
                                                 engine::Context& context);

}  // namespace qna::predict
