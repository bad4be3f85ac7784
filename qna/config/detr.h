// What a DETR is made of, as a plain struct with a JSON and a TOML form.
#pragma once

#include <variant>

#include "qna/config/qna_vit.h"
#include "qna/config/resnet.h"

namespace qna::config {

// DETR-QnA: blocks of the encoder that QnA blocks stand in for.
//
// The paper says only "two transformer blocks are replaced with four QnA blocks". Here these are
// the first two: what is local belongs before what is global, as in the stages of QnA-ViT, and
// there the pre-norm QnA blocks go on from the backbone's sums as its own blocks do. With the
// paper's MLP of 4 times the features, four of them have about the parameters of the two that they
// replace (4 x 11 C^2 and 2 x 20 C^2).
struct EncoderQnAConfig {
  int64_t blocks = 0;    // 0: DETR as it was; the paper's DETR-QnA: 4
  int64_t replaces = 2;  // so many encoder blocks
  int64_t first = 0;     // from this one on
  int64_t heads = 8;
  int64_t queries = 2;
  std::array<int64_t, 2> kernel_size = {3, 3};
  double mlp_ratio = 4;

  bool operator==(const EncoderQnAConfig&) const = default;
};

struct DetrConfig {
  std::variant<ResNetConfig, QnAViTConfig> backbone = ResNetConfig{};  // with 0 classes
  int64_t hidden = 256;
  int64_t heads = 8;
  int64_t encoder_blocks = 6;
  int64_t decoder_blocks = 6;
  int64_t feedforward = 2048;
  int64_t queries = 100;
  int64_t classes = 91;  // without "no object"; COCO's identifiers reach from 1 to 90
  double dropout = 0.1;
  bool pre_norm = false;
  PositionKind positions = PositionKind::kSine;
  SineOptions sines = {};  // `waves` and `temperature`
  bool anchors = false;    // queries are learned boxes, refined by every block (DAB-DETR)
  bool aux_loss = true;    // every decoder block has predictions, not only the last
  EncoderQnAConfig qna = {};

  bool has_qna_backbone() const { return std::holds_alternative<QnAViTConfig>(backbone); }
  int64_t backbone_features() const;  // of its last map
  int64_t backbone_stride() const;    // pixels per position of that

  bool operator==(const DetrConfig&) const = default;
};

// Throws qna::Error that names the field, the rule and the value.
void check(const DetrConfig& config);

// What it is made of.
TransformerOptions transformer_options(const DetrConfig& config);
SineOptions sine_options(const DetrConfig& config);

// The keys are the fields' names, those of `qna` in a table of that name; what is left out has its
// default. `backbone` is "resnet18", "resnet50" or "resnet101" (with the key `dilation` beside it),
// a name of registry.h, or a table of a QnAViTConfig. Unknown keys, wrong types and values that do
// not fit together throw qna::Error.
nlohmann::json to_json(const DetrConfig& config);
DetrConfig detr_config_from_json(const nlohmann::json& json);

}  // namespace qna::config
