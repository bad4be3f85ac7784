// The names and shapes of all tensors that a network has: what a weights file of it must hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qna/config/auto_encoder.h"
#include "qna/config/detr.h"
#include "qna/config/qna_vit.h"
#include "qna/config/resnet.h"

namespace qna::config {

struct Parameter {
  std::string name;  // "stages.0.blocks.1.qna.key_weight"
  std::vector<int64_t> shape;
  // Statistics are kept beside what is learned; a count is one integer that predicts nothing.
  enum class Kind { kLearned, kStatistic, kCount } kind = Kind::kLearned;
};
using Parameters = std::vector<Parameter>;

Parameters parameters(const QnAViTConfig& config);
Parameters parameters(const ResNetConfig& config);
Parameters parameters(const DetrConfig& config);
Parameters parameters(const AutoEncoderConfig& config);

// How many numbers are learned.
int64_t learned_count(const Parameters& parameters);

}  // namespace qna::config
