// The stem of kind "efficientnet", packed: config/efficientnet_stem.h says what it is.
#pragma once

#include <vector>

#include "qna/config/efficientnet_stem.h"
#include "qna/config/qna_vit.h"
#include "qna/engine/layers.h"

namespace qna::engine {

class EfficientNetStem {
 public:
  EfficientNetStem(const Tensors& tensors, const config::QnAViTConfig& config);
  // x: pixels, with zeros where the mask is 0. y: a position for every 16 x 16 of them.
  void run(const Map& x, const Map& y, Mask mask, Worker& worker) const;
  size_t bytes() const;

 private:
  struct Block {
    Block(const Tensors& tensors, const config::InvertedResidualOptions& options);
    Map out(const Map& x) const;
    // mask: of x.
    void run(const Map& x, const Map& y, Mask mask, Worker& worker) const;
    size_t bytes() const { return expand.bytes() + depthwise.bytes() + project.bytes(); }

    config::InvertedResidualOptions options;
    kernels::PackedWeights expand;  // empty where the block has none
    Depthwise depthwise;
    kernels::PackedWeights project;
  };

  Convolution conv_;
  std::vector<Block> blocks_;
  kernels::PackedWeights out_;
};

}  // namespace qna::engine
