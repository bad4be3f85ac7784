// A network that serves: opened from a weights file, packed for this CPU, never changed again. Any
// number of threads may use one at once, each with a Context of its own.
//
//   const engine::Model model = engine::Model::open("tiny.safetensors");
//   engine::Context context;
//   std::vector<float> logits(model.classes());
//   model.classify({.batch = 1, .height = 224, .width = 224, .pixels = x}, logits.data(), context);
//
// An image's result has the same bits for every number of threads and whatever it was batched with.
#pragma once

#include <memory>

#include "qna/engine/context.h"
#include "qna/engine/model_file.h"
#include "qna/engine/visitor.h"
#include "qna/kernels/packed_weights.h"

namespace qna::engine {

// Images of one size, channels last, normalised.
struct Images {
  int64_t batch = 1;
  int64_t height = 0;
  int64_t width = 0;
  const float* pixels = nullptr;  // [batch, height, width, channels]
  // [batch, height, width], 0: there is no image; or null. Each image begins at the top left. What
  // lies outside changes nothing inside, so images of different sizes can share a batch.
  const uint8_t* mask = nullptr;
};

using kernels::WeightType;

struct ModelOptions {
  // As which the weights of products are kept: bfloat16 takes half of the memory and rounds them.
  // docs/engine.md says what that costs.
  WeightType weight_type = WeightType::kFloat32;
};

class Model {
 public:
  // Throw qna::Error when the file is broken or its tensors do not fit its configuration.
  static Model open(const std::string& path, const ModelOptions& options = {});
  explicit Model(const ModelFile& file, const ModelOptions& options = {});

  Kind kind() const;
  const NetworkConfig& config() const;
  const ModelInfo& info() const;
  const std::string& origin() const;  // the file's path

  // Throw WrongKind unless the model is of that kind.
  const config::QnAViTConfig& classifier() const;
  const config::DetrConfig& detector() const;
  const config::AutoEncoderConfig& auto_encoder() const;

  int64_t channels() const { return config::channels_of(config()); }
  int64_t classes() const { return config::classes_of(config()); }
  size_t bytes() const;  // of packed weights

  // A classifier's logits, [batch, classes]. Without a head: nothing is written, but the visitor
  // sees what it wants. `logits` may be null for one that only looks.
  void classify(const Images& images, float* logits, Context& context,
                Visitor* visitor = nullptr) const;

  // A detector's predictions: logits [blocks, batch, queries, classes + 1], the last class is "no
  // object"; boxes [blocks, batch, queries, 4]: centre x, centre y, width, height as parts of the
  // image's width and height. blocks: 1, the last decoder block; or, where every_block, all of
  // them, the last one last. Each image must have its top left pixel inside the mask.
  struct Detections {
    float* logits = nullptr;
    float* boxes = nullptr;
    bool every_block = false;
  };
  void detect(const Images& images, const Detections& out, Context& context,
              Visitor* visitor = nullptr) const;

  // What an auto-encoder makes of images, [batch, height, width, channels]. No mask.
  void reconstruct(const Images& images, float* out, Context& context,
                   Visitor* visitor = nullptr) const;

  // The layers of a classifier, or of a detector's backbone, that attend, in their order; the
  // others' maps are not drawn: a query per pixel has no drawing of its own, shifted windows and
  // convolutions have none at all. Throws WrongKind for an auto-encoder.
  std::vector<AttentionLayer> attention_layers() const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

// One of each kind that is worth a look first: the last QnA block of every stage and the network's
// last self-attention block.
std::vector<AttentionLayer> typical_attention_layers(const Model& model);

// By its name, of which "stages." and "blocks." may be left out: "2.5", "2.downsample". Throws
// qna::Error that lists the names.
AttentionLayer find_attention_layer(const Model& model, std::string_view name);

}  // namespace qna::engine
