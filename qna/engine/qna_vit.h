// QnA-ViT, packed: models/qna_vit.h says what it computes.
#pragma once

#include "qna/config/qna_vit.h"
#include "qna/engine/block.h"
#include "qna/engine/efficientnet_stem.h"
#include "qna/engine/visitor.h"

namespace qna::engine {

// The images that one call of a network is given: all of one size.
struct ImageBatch {
  int64_t batch, height, width;
  const float* pixels;
  Mask mask;  // of the pixels, or null
};

class QnAViT {
 public:
  QnAViT(const Tensors& tensors, const config::QnAViTConfig& config);
  // Blocks point into themselves.
  QnAViT(const QnAViT&) = delete;
  QnAViT& operator=(const QnAViT&) = delete;

  // The last stage's map for images of this size, without memory.
  Map last_map(const ImageBatch& images) const;
  // features: such a map, with memory. False: the visitor was done before the end.
  bool run_features(const ImageBatch& images, const Map& features, Worker& worker,
                    Visitor* visitor) const;
  // features -> logits [batch, classes] (null: not wanted). mask: that of the last map.
  void run_head(const Map& features, Mask mask, float* logits, Worker& worker,
                Visitor* visitor) const;
  // Both.
  void run(const ImageBatch& images, float* logits, Worker& worker, Visitor* visitor) const;

  std::vector<AttentionLayer> attention_layers() const;
  const config::QnAViTConfig& config() const { return config_; }
  size_t bytes() const;

 private:
  struct Stage {
    std::vector<std::unique_ptr<const Block>> blocks;
    std::unique_ptr<const Block> downsample;  // one of the three, none in the last stage
    std::optional<Convolution> merge;
    std::optional<ConvPool> pool;
  };
  struct Walk;  // where a pass through the network is

  void run_stem(const ImageBatch& images, const Map& y, Worker& worker) const;
  void run_downsample(const Stage& stage, const Map& x, const Map& y, Mask mask,
                      Worker& worker) const;
  void pool(const Map& features, Mask mask, float* pooled, Worker& worker) const;
  AttentionLayer describe(std::string name, size_t stage, const Block& block) const;

  config::QnAViTConfig config_;
  std::optional<Convolution> stem_;  // one of the two
  std::optional<EfficientNetStem> efficientnet_stem_;
  std::vector<Stage> stages_;
  std::optional<NormWeights> head_norm_;
  std::optional<QnAOverMap> head_qna_;
  kernels::PackedWeights fc_;
};

}  // namespace qna::engine
