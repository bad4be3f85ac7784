#include "qna/config/resnet.h"

#include "qna/base/error.h"

namespace qna::config {

std::array<int64_t, 4> ResNetConfig::blocks() const {
  switch (depth) {
    case 18:
      return {2, 2, 2, 2};
    case 101:
      return {3, 4, 23, 3};
    default:
      return {3, 4, 6, 3};
  }
}

void check(const ResNetConfig& config) {
  qna::check(config.depth == 18 || config.depth == 50 || config.depth == 101,
             "ResNet: depth must be 18, 50 or 101, got {}", config.depth);
  qna::check(!(config.dilation && config.basic()),
             "ResNet: dilation needs a depth of 50 or 101, got {}", config.depth);
  qna::check(config.classes >= 0 && config.classes <= 1 << 24,
             "ResNet: classes must be from 0 to {}, got {}", 1 << 24, config.classes);
}

std::vector<ResNetBlockOptions> resnet_stage(const ResNetConfig& config, int index) {
  const auto features_of = [&](int stage) -> int64_t {
    if (stage < 0) return 64;  // of the stem
    return (config.basic() ? int64_t{64} : int64_t{256}) << stage;
  };
  const bool dilated = index == 3 && config.dilation;
  std::vector<ResNetBlockOptions> blocks;
  for (int64_t i = 0; i < config.blocks()[index]; ++i) {
    blocks.push_back({.basic = config.basic(),
                      .in_features = features_of(i == 0 ? index - 1 : index),
                      .features = features_of(index),
                      .stride = i == 0 && index > 0 && !dilated ? 2 : 1,
                      // The first block of a dilated stage sees the map of the stage before it, as
                      // it was.
                      .dilation = dilated && i > 0 ? 2 : 1});
  }
  return blocks;
}

}  // namespace qna::config
