#include "qna/config/efficientnet_stem.h"

namespace qna::config {

std::vector<InvertedResidualOptions> efficientnet_blocks() {
  struct Stage {
    int64_t blocks, features, expansion, kernel, stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 3, 1},
                               {2, 24, 6, 3, 2},
                               {2, 40, 6, 5, 2},
                               {3, 80, 6, 3, 2},
                               {3, kEfficientNetLast, 6, 5, 1}};
  std::vector<InvertedResidualOptions> blocks;
  int64_t features = kEfficientNetFirst;
  for (const Stage& stage : kStages) {
    for (int64_t i = 0; i < stage.blocks; ++i) {
      blocks.push_back({.in_features = features,
                        .hidden = features * stage.expansion,
                        .features = stage.features,
                        .kernel = stage.kernel,
                        .stride = i == 0 ? stage.stride : 1});
      features = stage.features;
    }
  }
  return blocks;
}

}  // namespace qna::config
