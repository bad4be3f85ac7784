#include "qna/models/auto_encoder.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include "qna/base/error.h"
#include "qna/nn/norm.h"
#include "qna/nn/qna_layer.h"

namespace qna::models {
namespace {

using torch::Tensor;

constexpr const char* kSubject = "auto-encoder";

// Channels last in memory, [B, C, H, W] by name, as LibTorch's convolutions want it.
Tensor planes(const Tensor& x) { return x.permute({0, 3, 1, 2}); }
Tensor pixels(const Tensor& x) { return x.permute({0, 2, 3, 1}); }

// What one convolutional layer is made of.
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
      const config::TransposedWindow window(factor_);
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
  explicit QnAResampleImpl(const nn::QnAOptions& options) : options_(options) {
    QnAResampleImpl::reset();
  }

  void reset() override {
    norm_ = register_module("norm", nn::layer_norm(options_.in_features));
    qna_ = register_module("qna", nn::QnA(options_));
    // Every query of every head begins with places of its own. With zeros all would see the mean of
    // the window, and without connections around the layers little of the image would get
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

// Between widths `index` and `index` + 1.
std::shared_ptr<torch::nn::Module> make_encoder_layer(const AutoEncoderConfig& config,
                                                      size_t index) {
  using Kind = ConvResampleImpl::Kind;
  const Part part{config.widths[index], config.widths[index + 1], config};
  switch (config.encoder) {
    case config::EncoderLayer::kConvStride:
      return std::make_shared<ConvResampleImpl>(part, Kind::kStride);
    case config::EncoderLayer::kConvPool:
      return std::make_shared<ConvResampleImpl>(part, Kind::kPool);
    default:
      return std::make_shared<QnAResampleImpl>(config::encoder_qna(config, index));
  }
}

// The way back.
std::shared_ptr<torch::nn::Module> make_decoder_layer(const AutoEncoderConfig& config,
                                                      size_t index) {
  using Kind = ConvResampleImpl::Kind;
  const Part part{config.widths[index + 1], config.widths[index], config};
  switch (config.decoder) {
    case config::DecoderLayer::kBilinear:
      return std::make_shared<ConvResampleImpl>(part, Kind::kBilinear);
    case config::DecoderLayer::kTransposed:
      return std::make_shared<ConvResampleImpl>(part, Kind::kTransposed);
    default:
      return std::make_shared<QnAResampleImpl>(config::decoder_qna(config, index));
  }
}

}  // namespace

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
    encoder->push_back(make_encoder_layer(config_, i));
    decoder->push_back(make_decoder_layer(config_, w.size() - 2 - i));
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
    // What the image does not need is cut at once, not when it has become large.
    map = dynamic_cast<Resample&>(*layer)
              .forward(map)
              .slice(1, 0, positions(height))
              .slice(2, 0, positions(width));
  }
  return head->forward(map);
}

Tensor AutoEncoderImpl::forward(const Tensor& x) { return decode(encode(x), x.size(1), x.size(2)); }

}  // namespace qna::models
