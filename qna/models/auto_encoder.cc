#include "qna/models/auto_encoder.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/format/fields.h"
#include "qna/nn/norm.h"
#include "qna/nn/qna.h"

namespace qna::models {
namespace {

using torch::Tensor;

constexpr const char* kSubject = "auto-encoder";
constexpr format::EnumName<EncoderLayer> kEncoders[] = {{EncoderLayer::kConvStride, "conv_s2_in"},
                                                        {EncoderLayer::kConvPool, "conv_in_max"},
                                                        {EncoderLayer::kQnA, "ln_qna"}};
constexpr format::EnumName<DecoderLayer> kDecoders[] = {
    {DecoderLayer::kBilinear, "bilinear_conv_in"},
    {DecoderLayer::kTransposed, "conv_transposed_in"},
    {DecoderLayer::kQnA, "ln_uqna"}};

void visit_config(auto& c, const auto& visit, const auto& visit_enum) {
  visit_enum("encoder", c.encoder, kEncoders);
  visit_enum("decoder", c.decoder, kDecoders);
  visit("channels", c.channels);
  visit("widths", c.widths);
  visit("factor", c.factor);
  visit("heads", c.heads);
  visit("kernel_size", c.kernel_size);
}

// Channels last in memory, [B, C, H, W] by name, as LibTorch's convolutions want it.
Tensor planes(const Tensor& x) { return x.permute({0, 3, 1, 2}); }
Tensor pixels(const Tensor& x) { return x.permute({0, 2, 3, 1}); }

// What one layer is made of.
struct Part {
  int64_t in, out;
  const AutoEncoderConfig& config;
};

// One layer of the encoder or the decoder, channels last.
class Resample {
 public:
  virtual ~Resample() = default;
  virtual Tensor forward(const Tensor& x) = 0;
};

// A convolution and InstanceNorm with ReLU, and what changes the size before, in or behind it.
class ConvResampleImpl final : public torch::nn::Cloneable<ConvResampleImpl>, public Resample {
 public:
  enum class Kind { kStride, kPool, kBilinear, kTransposed };

  ConvResampleImpl(const Part& part, Kind kind)
      : in_(part.in),
        out_(part.out),
        factor_(part.config.factor),
        kernel_(part.config.kernel_size),
        kind_(kind) {
    ConvResampleImpl::reset();
  }

  void reset() override {
    if (kind_ == Kind::kTransposed) {
      const TransposedWindow window(factor_);
      transposed_ = register_module(
          "conv",
          torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(in_, out_, window.size)
                                         .stride(factor_)
                                         .padding(window.padding)
                                         .output_padding(window.output_padding)
                                         .bias(false)));
    } else {
      conv_ = register_module("conv",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(in_, out_, kernel_)
                                                    .stride(kind_ == Kind::kStride ? factor_ : 1)
                                                    .padding(kernel_ / 2)
                                                    .bias(false)));
    }
    norm_ = register_module(
        "norm", torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(out_).affine(true)));
  }

  Tensor forward(const Tensor& x) override {
    Tensor map = planes(x);
    if (kind_ == Kind::kBilinear) {
      const double factor = static_cast<double>(factor_);
      map = at::upsample_bilinear2d(map,
                                    at::IntArrayRef({map.size(2) * factor_, map.size(3) * factor_}),
                                    /*align_corners=*/false, factor, factor);
    }
    map = kind_ == Kind::kTransposed ? transposed_->forward(map) : conv_->forward(map);
    map = norm_->forward(map).relu_();
    // A map that is no multiple of the factor keeps its rest, as QnA's windows do.
    if (kind_ == Kind::kPool) {
      map = at::max_pool2d(map, factor_, factor_, 0, 1, /*ceil_mode=*/true);
    }
    return pixels(map);
  }

 private:
  int64_t in_, out_, factor_, kernel_;
  Kind kind_;
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::ConvTranspose2d transposed_{nullptr};
  torch::nn::InstanceNorm2d norm_{nullptr};
};

// LayerNorm and QnA, without a skip connection.
class QnAResampleImpl final : public torch::nn::Cloneable<QnAResampleImpl>, public Resample {
 public:
  QnAResampleImpl(const Part& part, bool up) {
    options_ = {.in_features = part.in,
                .out_features = part.out,
                .heads = part.config.heads,
                .queries = 1,
                .kernel_size = {part.config.kernel_size, part.config.kernel_size}};
    if (up) {
      options_.upsample = part.config.factor;
      options_.queries = 0;
    } else {
      options_.stride = {part.config.factor, part.config.factor};
    }
    QnAResampleImpl::reset();
  }

  void reset() override {
    norm_ = register_module("norm", nn::layer_norm(options_.in_features));
    qna_ = register_module("qna", nn::QnA(options_));
    // Every query of every head begins with places of its own. With zeros all would see the mean of
    // the window, and without connections around the layers little of the picture would get
    // through: they would learn far more slowly.
    const torch::NoGradGuard no_grad;
    qna_->relative_bias.normal_(0, 2);
  }

  Tensor forward(const Tensor& x) override { return qna_->forward(norm_->forward(x)); }

 private:
  nn::QnAOptions options_;
  torch::nn::LayerNorm norm_{nullptr};
  nn::QnA qna_{nullptr};
};

std::shared_ptr<torch::nn::Module> make_encoder_layer(const Part& part) {
  using Kind = ConvResampleImpl::Kind;
  switch (part.config.encoder) {
    case EncoderLayer::kConvStride:
      return std::make_shared<ConvResampleImpl>(part, Kind::kStride);
    case EncoderLayer::kConvPool:
      return std::make_shared<ConvResampleImpl>(part, Kind::kPool);
    default:
      return std::make_shared<QnAResampleImpl>(part, /*up=*/false);
  }
}

std::shared_ptr<torch::nn::Module> make_decoder_layer(const Part& part) {
  using Kind = ConvResampleImpl::Kind;
  switch (part.config.decoder) {
    case DecoderLayer::kBilinear:
      return std::make_shared<ConvResampleImpl>(part, Kind::kBilinear);
    case DecoderLayer::kTransposed:
      return std::make_shared<ConvResampleImpl>(part, Kind::kTransposed);
    default:
      return std::make_shared<QnAResampleImpl>(part, /*up=*/true);
  }
}

}  // namespace

int64_t AutoEncoderConfig::stride() const {
  int64_t stride = 1;
  for (int64_t i = 0; i < layers(); ++i) stride *= factor;
  return stride;
}

void check(const AutoEncoderConfig& c) {
  qna::check(c.channels >= 1 && c.channels <= 1024, "{}: channels must be from 1 to 1024, got {}",
             kSubject, c.channels);
  qna::check(c.layers() >= 1 && c.layers() <= 16, "{}: widths must be 2 to 17 numbers, got {}",
             kSubject, c.widths.size());
  qna::check(c.factor >= 2 && c.factor <= 8, "{}: factor must be from 2 to 8, got {}", kSubject,
             c.factor);
  qna::check(c.stride() <= 65536, "{}: {} layers that shrink {} times each are too many", kSubject,
             c.layers(), c.factor);
  qna::check(c.kernel_size >= 1 && c.kernel_size <= 63 && c.kernel_size % 2 == 1,
             "{}: kernel_size must be odd and at most 63, got {}", kSubject, c.kernel_size);
  qna::check(c.heads >= 1, "{}: heads must be at least 1, got {}", kSubject, c.heads);
  const bool has_qna = c.encoder == EncoderLayer::kQnA || c.decoder == DecoderLayer::kQnA;
  for (const int64_t width : c.widths) {
    qna::check(width >= 1 && width <= 65536, "{}: widths must be from 1 to 65536, got {}", kSubject,
               width);
    qna::check(!has_qna || width % c.heads == 0,
               "{}: widths must be multiples of heads, {}, got {}", kSubject, c.heads, width);
  }
}

int64_t parameter_count(const AutoEncoderConfig& c) {
  const int64_t taps = c.kernel_size * c.kernel_size;
  const auto conv = [](int64_t in, int64_t out, int64_t kernel) {
    return in * out * kernel * kernel + 2 * out;
  };
  const auto qna = [&](int64_t in, int64_t out, int64_t queries, bool scaled) {
    return 2 * in + queries * out + 2 * in * out + out * out +
           (scaled ? 2 : 1) * taps * queries * c.heads;
  };
  int64_t count = (c.channels + 1) * c.widths.front() + (c.widths.front() + 1) * c.channels;
  for (size_t i = 0; i + 1 < c.widths.size(); ++i) {
    const int64_t wide = c.widths[i], deep = c.widths[i + 1];
    count += c.encoder == EncoderLayer::kQnA ? qna(wide, deep, 1, /*scaled=*/true)
                                             : conv(wide, deep, c.kernel_size);
    switch (c.decoder) {
      case DecoderLayer::kBilinear:
        count += conv(deep, wide, c.kernel_size);
        break;
      case DecoderLayer::kTransposed:
        count += conv(deep, wide, TransposedWindow(c.factor).size);
        break;
      case DecoderLayer::kQnA:
        count += qna(deep, wide, c.factor * c.factor, /*scaled=*/false);
    }
  }
  return count;
}

nlohmann::json to_json(const AutoEncoderConfig& config) {
  nlohmann::json out;
  visit_config(
      config, [&](const char* key, const auto& value) { out[key] = value; },
      [&](const char* key, const auto& value, const auto& names) {
        out[key] = format::name_of(value, names);
      });
  return out;
}

AutoEncoderConfig auto_encoder_config_from_json(const nlohmann::json& object) {
  AutoEncoderConfig config;
  const format::Fields fields(object, kSubject);
  visit_config(config, fields, [&](const char* key, auto& value, const auto& names) {
    fields.choose(key, value, names);
  });
  fields.refuse_unknown();
  check(config);
  return config;
}

AutoEncoderImpl::AutoEncoderImpl(const AutoEncoderConfig& config) : config_(config) {
  check(config_);
  AutoEncoderImpl::reset();
}

void AutoEncoderImpl::reset() {
  const std::vector<int64_t>& w = config_.widths;
  stem = register_module("stem", torch::nn::Linear(config_.channels, w.front()));
  encoder = register_module("encoder", torch::nn::ModuleList());
  decoder = register_module("decoder", torch::nn::ModuleList());
  for (size_t i = 0; i + 1 < w.size(); ++i) {
    encoder->push_back(make_encoder_layer({w[i], w[i + 1], config_}));
    const size_t back = w.size() - 1 - i;
    decoder->push_back(make_decoder_layer({w[back], w[back - 1], config_}));
  }
  head = register_module("head", torch::nn::Linear(w.front(), config_.channels));
}

Tensor AutoEncoderImpl::encode(const Tensor& x) {
  qna::check(x.dim() == 4 && x.size(3) == config_.channels,
             "{}: x must be [B, H, W, {}], got {} dimensions and {} channels", kSubject,
             config_.channels, x.dim(), x.size(-1));
  Tensor map = stem->forward(x);
  for (const auto& layer : *encoder) map = dynamic_cast<Resample&>(*layer).forward(map);
  return map;
}

Tensor AutoEncoderImpl::decode(const Tensor& code, int64_t height, int64_t width) {
  qna::check(code.dim() == 4 && code.size(3) == config_.widths.back(),
             "{}: code must be [B, h, w, {}], got {} dimensions and {} features", kSubject,
             config_.widths.back(), code.dim(), code.size(-1));
  int64_t stride = config_.stride();  // pixels per position of the map
  const auto positions = [&](int64_t pixels) { return (pixels + stride - 1) / stride; };
  qna::check(height >= 1 && width >= 1 && positions(height) <= code.size(1) &&
                 positions(width) <= code.size(2),
             "{}: a code of {} x {} does not cover {} x {} pixels", kSubject, code.size(1),
             code.size(2), height, width);
  Tensor map = code;
  for (const auto& layer : *decoder) {
    stride /= config_.factor;
    // What the picture does not need is cut at once, not when it has become large.
    map = dynamic_cast<Resample&>(*layer)
              .forward(map)
              .slice(1, 0, positions(height))
              .slice(2, 0, positions(width));
  }
  return head->forward(map);
}

Tensor AutoEncoderImpl::forward(const Tensor& x) { return decode(encode(x), x.size(1), x.size(2)); }

}  // namespace qna::models
