// ResNet, packed, its frozen BatchNorm inside the convolutions: models/resnet.h says what it
// computes.
#pragma once

#include "qna/config/resnet.h"
#include "qna/engine/qna_vit.h"

namespace qna::engine {

class ResNet {
 public:
  ResNet(const Tensors& tensors, const config::ResNetConfig& config);

  // The last stage's map for images of this size, without memory.
  Map last_map(const ImageBatch& images) const;
  void run_features(const ImageBatch& images, const Map& features, Worker& worker) const;
  size_t bytes() const;

 private:
  struct Block {
    Block(const Tensors& tensors, const config::ResNetBlockOptions& options);
    Map out(const Map& x) const;
    // Masks of the maps before and behind the block's stride, or null.
    void run(const Map& x, const Map& y, Mask before, Mask behind, Worker& worker) const;

    config::ResNetBlockOptions options;
    std::vector<Convolution> convolutions;  // two, or three
    std::optional<Convolution> skip;
  };

  config::ResNetConfig config_;
  Convolution stem_;
  std::vector<std::vector<Block>> stages_;
};

}  // namespace qna::engine
