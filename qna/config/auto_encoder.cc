#include "qna/config/auto_encoder.h"

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/format/fields.h"

namespace qna::config {
namespace {

constexpr const char* kAutoEncoderSubject = "auto-encoder";
constexpr format::EnumName<EncoderLayer> kEncoders[] = {{EncoderLayer::kConvStride, "conv_s2_in"},
                                                        {EncoderLayer::kConvPool, "conv_in_max"},
                                                        {EncoderLayer::kQnA, "ln_qna"}};
constexpr format::EnumName<DecoderLayer> kDecoders[] = {
    {DecoderLayer::kBilinear, "bilinear_conv_in"},
    {DecoderLayer::kTransposed, "conv_transposed_in"},
    {DecoderLayer::kQnA, "ln_uqna"}};

void visit_auto_encoder(auto& c, const auto& visit) {
  visit.choose("encoder", c.encoder, kEncoders);
  visit.choose("decoder", c.decoder, kDecoders);
  visit("channels", c.channels);
  visit("widths", c.widths);
  visit("factor", c.factor);
  visit("heads", c.heads);
  visit("kernel_size", c.kernel_size);
}

QnAOptions resample_qna(const AutoEncoderConfig& config, int64_t in, int64_t out) {
  return {.in_features = in,
          .out_features = out,
          .heads = config.heads,
          .queries = 1,
          .kernel_size = {config.kernel_size, config.kernel_size}};
}

}  // namespace

int64_t AutoEncoderConfig::stride() const {
  int64_t stride = 1;
  for (int64_t i = 0; i < layers(); ++i) stride *= factor;
  return stride;
}

void check(const AutoEncoderConfig& c) {
  qna::check(c.channels >= 1 && c.channels <= 1024, "{}: channels must be from 1 to 1024, got {}",
             kAutoEncoderSubject, c.channels);
  qna::check(c.layers() >= 1 && c.layers() <= 16, "{}: widths must be 2 to 17 numbers, got {}",
             kAutoEncoderSubject, c.widths.size());
  qna::check(c.factor >= 2 && c.factor <= 8, "{}: factor must be from 2 to 8, got {}",
             kAutoEncoderSubject, c.factor);
  qna::check(c.stride() <= 65536, "{}: {} layers that shrink {} times each are too many",
             kAutoEncoderSubject, c.layers(), c.factor);
  qna::check(c.kernel_size >= 1 && c.kernel_size <= 63 && c.kernel_size % 2 == 1,
             "{}: kernel_size must be odd and at most 63, got {}", kAutoEncoderSubject,
             c.kernel_size);
  qna::check(c.heads >= 1, "{}: heads must be at least 1, got {}", kAutoEncoderSubject, c.heads);
  const bool has_qna = c.encoder == EncoderLayer::kQnA || c.decoder == DecoderLayer::kQnA;
  for (const int64_t width : c.widths) {
    qna::check(width >= 1 && width <= 65536, "{}: widths must be from 1 to 65536, got {}",
               kAutoEncoderSubject, width);
    qna::check(!has_qna || width % c.heads == 0,
               "{}: widths must be multiples of heads, {}, got {}", kAutoEncoderSubject, c.heads,
               width);
  }
}

nlohmann::json to_json(const AutoEncoderConfig& config) {
  nlohmann::json out;
  visit_auto_encoder(config, format::FieldWriter(out));
  return out;
}

AutoEncoderConfig auto_encoder_config_from_json(const nlohmann::json& object) {
  AutoEncoderConfig config;
  const format::Fields fields(object, kAutoEncoderSubject);
  visit_auto_encoder(config, fields);
  fields.refuse_unknown();
  check(config);
  return config;
}

QnAOptions encoder_qna(const AutoEncoderConfig& config, size_t index) {
  QnAOptions options = resample_qna(config, config.widths[index], config.widths[index + 1]);
  options.stride = {config.factor, config.factor};
  return complete(options);
}

QnAOptions decoder_qna(const AutoEncoderConfig& config, size_t index) {
  QnAOptions options = resample_qna(config, config.widths[index + 1], config.widths[index]);
  options.upsample = config.factor;
  options.queries = 0;
  return complete(options);
}

}  // namespace qna::config
