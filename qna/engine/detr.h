// DETR and DETR-QnA, packed: models/detr.h says what they compute.
#pragma once

#include "qna/config/detr.h"
#include "qna/engine/resnet.h"
#include "qna/engine/transformer.h"

namespace qna::engine {

class Detr {
 public:
  Detr(const Tensors& tensors, const config::DetrConfig& config);

  // The predictions of one block or of all, see Model::detect. Image 0 of the batch is image
  // `first` of `total` in the outputs.
  struct Output {
    float* logits;
    float* boxes;
    bool every_block;
    int64_t first, total;
  };
  void run(const ImageBatch& images, const Output& out, Worker& worker, Visitor* visitor) const;

  // What lies behind the backbone: `map` is its last map, projected to the hidden features, and is
  // overwritten; `mask` is the map's.
  void run_transformer(const Map& map, Mask mask, const Output& out, Worker& worker,
                       Visitor* visitor) const;
  std::vector<AttentionLayer> attention_layers() const;  // of the backbone
  size_t bytes() const;

 private:
  class Queries;

  Map last_map(const ImageBatch& images) const;
  int64_t stride() const { return config_.backbone_stride(); }
  // The position code of a map: [height, width, hidden], of every image where there is a mask.
  void positions(const Map& map, Mask mask, float* code, Worker& worker) const;

  config::DetrConfig config_;
  std::unique_ptr<const ResNet> resnet_;  // one of the two
  std::unique_ptr<const QnAViT> qna_vit_;
  std::optional<NormWeights> backbone_norm_;
  kernels::PackedWeights input_proj_;
  std::unique_ptr<const Encoder> encoder_;
  std::unique_ptr<const Decoder> decoder_;
  Floats query_embed_;  // [queries, hidden], or the queries' boxes before the sigmoid, [queries, 4]
  Floats row_embed_, col_embed_;  // learned positions: [50, hidden / 2]
  kernels::PackedWeights class_embed_;
  std::vector<kernels::PackedWeights> box_layers_;
};

}  // namespace qna::engine
