// What an auto-encoder is made of, as a plain struct with a JSON form.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "qna/config/layers.h"

namespace qna::config {

enum class EncoderLayer {
  kConvStride,  // 3 x 3 convolution with stride 2, InstanceNorm: the paper's ConvS2-IN
  kConvPool,    // 3 x 3 convolution, InstanceNorm, 2 x 2 max-pooling: Conv-IN-Max
  kQnA,         // LayerNorm, QnA with one query and stride 2: LN-QnA
};
enum class DecoderLayer {
  kBilinear,    // bilinear up-sampling, 3 x 3 convolution, InstanceNorm: Bilinear-Conv-IN
  kTransposed,  // transposed convolution, InstanceNorm: ConvTransposed-IN
  kQnA,         // LayerNorm, QnA with s x s queries: LN-UQnA
};

struct AutoEncoderConfig {
  EncoderLayer encoder = EncoderLayer::kQnA;
  DecoderLayer decoder = DecoderLayer::kQnA;
  int64_t channels = 3;  // of the images
  // Features of the map before the first layer and behind each: one more than there are layers. The
  // decoder has the same in reverse order.
  std::vector<int64_t> widths = {32, 64, 128, 256, 256, 256};
  int64_t factor = 2;  // of every layer, down and up
  int64_t heads = 8;   // of QnA
  int64_t kernel_size = 3;

  int64_t layers() const { return static_cast<int64_t>(widths.size()) - 1; }
  int64_t stride() const;  // pixels per position of the code

  bool operator==(const AutoEncoderConfig&) const = default;
};

// Throws qna::Error that names the field, the rule and the value.
void check(const AutoEncoderConfig& config);

// The transposed convolution that makes a map `factor` times larger. Its window is twice the
// factor: every pixel gets as many terms as its neighbours, so it does not begin with a
// checkerboard.
struct TransposedWindow {
  explicit TransposedWindow(int64_t factor)
      : size(2 * factor), padding((factor + 1) / 2), output_padding(factor % 2) {}
  int64_t size, padding, output_padding;
};

// Exact, without building the network.
int64_t parameter_count(const AutoEncoderConfig& config);

// The keys are the fields' names; what is left out has its default. Unknown keys and wrong values
// throw qna::Error.
nlohmann::json to_json(const AutoEncoderConfig& config);
AutoEncoderConfig auto_encoder_config_from_json(const nlohmann::json& json);

// The QnA layer behind width `index` of the encoder, and the one of the decoder that leads back to
// it.
QnAOptions encoder_qna(const AutoEncoderConfig& config, size_t index);
QnAOptions decoder_qna(const AutoEncoderConfig& config, size_t index);

}  // namespace qna::config
