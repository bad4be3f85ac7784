// The stem of kind "efficientnet": EfficientNet-Lite0 up to its fifth stage, a position for every
// 16 pixels, so that networks can start from weights that have seen ImageNet ("EfficientNet", 2019;
// its blocks are MobileNetV2's inverted residuals).
#pragma once

#include <cstdint>
#include <vector>

namespace qna::config {

// 1 x 1 to more features, a convolution of each by itself, 1 x 1 to few again. BatchNorms are
// inside the convolutions' weights and biases.
struct InvertedResidualOptions {
  int64_t in_features;
  int64_t hidden;  // as in_features: the first 1 x 1 is left out
  int64_t features;
  int64_t kernel;
  int64_t stride;

  bool expands() const { return hidden != in_features; }
  bool has_skip() const { return stride == 1 && in_features == features; }
  // Zeros before the first row and column, as TensorFlow's 'SAME' has them for even sizes.
  int64_t padding() const { return (kernel - stride) / 2; }
};

inline constexpr int64_t kEfficientNetStride = 16;
inline constexpr int64_t kEfficientNetFirst = 32;  // features of the convolution in front, 3 x 3
inline constexpr int64_t kEfficientNetLast = 112;  // of the last block

std::vector<InvertedResidualOptions> efficientnet_blocks();

}  // namespace qna::config
