// What a ResNet is made of.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace qna::config {

struct ResNetConfig {
  int64_t depth = 50;  // 18, 50 or 101
  // The last stage keeps its map's size, with twice the distance between the taps: "DC5".
  bool dilation = false;
  int64_t classes = 0;  // 0: no head

  bool basic() const { return depth < 50; }  // blocks of two 3 x 3 convolutions
  std::array<int64_t, 4> blocks() const;
  int64_t features() const { return basic() ? 512 : 2048; }  // of the last map
  int64_t stride() const { return dilation ? 16 : 32; }      // pixels per position of it

  bool operator==(const ResNetConfig&) const = default;
};

// Throws qna::Error that names the field, the rule and the value.
void check(const ResNetConfig& config);

// A residual block: two 3 x 3 convolutions, or a 3 x 3 between two 1 x 1 with a quarter of the
// features. The stride is that of the (first) 3 x 3 convolution, as torchvision has it.
struct ResNetBlockOptions {
  bool basic;
  int64_t in_features;
  int64_t features;  // of the output
  int64_t stride;
  int64_t dilation;

  int64_t inner() const { return basic ? features : features / 4; }
  // Whether the skip connection has a convolution of its own.
  bool reshapes() const { return stride != 1 || in_features != features; }
};

// The blocks of stage `index`, 0 to 3.
std::vector<ResNetBlockOptions> resnet_stage(const ResNetConfig& config, int index);

}  // namespace qna::config
