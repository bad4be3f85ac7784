// What a network costs, counted from its configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qna/config/qna_vit.h"

namespace qna::config {

// One row of `qna info`: a block, or another part.
struct LayerCost {
  std::string name;            // as the parameters are called: stages.0.blocks.1
  std::string description;     // "QnA 3x3, 8 heads, 2 queries"
  std::array<int64_t, 2> map;  // height and width of the output
  int64_t features;            // of the output
  int64_t parameters;
  // 2 per multiply-add of products, attention and window sums (by the paper's algorithm, which
  // multiplies every query with the values), and element-wise work: LayerNorm 8 and activation 10
  // per element, softmax 5 per score, sums and biases 1.
  double flops;
  int64_t stage;  // -1: stem or head
};

std::vector<LayerCost> layer_costs(const QnAViTConfig& config, int64_t height, int64_t width);

struct Cost {
  int64_t parameters = 0;
  double flops = 0;
};
Cost total_cost(const std::vector<LayerCost>& costs);

}  // namespace qna::config
