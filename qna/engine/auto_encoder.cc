#include "qna/engine/auto_encoder.h"

#include <cstring>

#include "qna/kernels/bilinear.h"
#include "qna/kernels/instance_norm.h"
#include "qna/kernels/pool.h"

namespace qna::engine {
namespace {

int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace

// One layer of the encoder or the decoder.
class AutoEncoder::Layer {
 public:
  virtual ~Layer() = default;
  virtual Map out(const Map& x) const = 0;  // the result's shape
  virtual void run(const Map& x, const Map& y, Worker& worker) const = 0;
  virtual size_t bytes() const = 0;
};

// A convolution and InstanceNorm with ReLU, and what changes the size before, in or behind it.
class AutoEncoder::ConvLayer final : public Layer {
 public:
  enum class Kind { kStride, kPool, kBilinear, kTransposed };

  ConvLayer(const Tensors& tensors, const config::AutoEncoderConfig& c, int64_t in, int64_t out,
            Kind kind)
      : kind_(kind),
        factor_(c.factor),
        features_(out),
        norm_(tensors.in("norm"), config::kTorchNormEpsilon) {
    const Floats weight = tensors.in("conv").get("weight");
    if (kind == Kind::kTransposed) {
      make_phases(weight, in, out, tensors.weight_type());
      return;
    }
    const int64_t stride = kind == Kind::kStride ? c.factor : 1;
    convolutions_.push_back({.shape = {.kernel_h = c.kernel_size,
                                       .kernel_w = c.kernel_size,
                                       .stride_h = stride,
                                       .stride_w = stride,
                                       .pad_top = c.kernel_size / 2,
                                       .pad_left = c.kernel_size / 2},
                             .weights = window_matrix(weight, out, in, c.kernel_size, c.kernel_size)
                                            .pack(tensors.weight_type())});
  }

  Map out(const Map& x) const override {
    const bool grows = kind_ == Kind::kBilinear || kind_ == Kind::kTransposed;
    const auto size = [&](int64_t n) { return grows ? n * factor_ : up(n, factor_); };
    return {x.batch, size(x.height), size(x.width), features_};
  }

  void run(const Map& x, const Map& y, Worker& worker) const override {
    Scope scope(worker.arena);
    switch (kind_) {
      case Kind::kStride:
        convolutions_[0].run(x, y, worker);
        return normalize(y, worker);
      case Kind::kTransposed:
        run_phases(x, y, worker);
        return normalize(y, worker);
      case Kind::kBilinear: {
        const Map large{x.batch, y.height, y.width, x.features,
                        scope.floats(y.rows() * x.features)};
        kernels::bilinear({.batch = x.batch,
                           .height = x.height,
                           .width = x.width,
                           .features = x.features,
                           .factor = factor_,
                           .x = x.data,
                           .y = large.data},
                          worker.runtime);
        convolutions_[0].run(large, y, worker);
        return normalize(y, worker);
      }
      case Kind::kPool: {
        const Map map{x.batch, x.height, x.width, features_, scope.floats(x.rows() * features_)};
        convolutions_[0].run(x, map, worker);
        normalize(map, worker);
        // A map that is no multiple of the factor keeps its rest.
        kernels::max_pool({.shape = {.batch = x.batch,
                                     .height = x.height,
                                     .width = x.width,
                                     .in_features = features_,
                                     .kernel_h = factor_,
                                     .kernel_w = factor_,
                                     .stride_h = factor_,
                                     .stride_w = factor_,
                                     .out_height = y.height,
                                     .out_width = y.width},
                           .x = map.data,
                           .y = y.data},
                          worker.runtime);
      }
    }
  }

  size_t bytes() const override {
    size_t sum = 0;
    for (const Convolution& c : convolutions_) sum += c.weights.bytes();
    return sum;
  }

 private:
  // A transposed convolution whose window is twice its factor f: output pixel f j + a has two taps
  // along each axis, k = (a + padding) mod f at input j + (a + padding) div f, and k + f one before
  // that. So each of the f x f phases is a convolution of 2 x 2.
  void make_phases(const Floats& weight, int64_t in, int64_t out, kernels::WeightType type) {
    const config::TransposedWindow window(factor_);
    for (int64_t a = 0; a < factor_; ++a)
      for (int64_t b = 0; b < factor_; ++b) {
        const int64_t at[2] = {a + window.padding, b + window.padding};
        Matrix matrix{out, 4 * in, Floats(out * 4 * in)};
        for (int64_t o = 0; o < out; ++o)
          for (int64_t tap = 0; tap < 4; ++tap) {
            // The first tap of an axis is the input before.
            const int64_t ky = at[0] % factor_ + (tap / 2 == 0 ? factor_ : 0);
            const int64_t kx = at[1] % factor_ + (tap % 2 == 0 ? factor_ : 0);
            for (int64_t c = 0; c < in; ++c) {
              matrix.weight[(o * 4 + tap) * in + c] =
                  weight[((c * out + o) * window.size + ky) * window.size + kx];
            }
          }
        convolutions_.push_back({.shape = {.kernel_h = 2,
                                           .kernel_w = 2,
                                           .pad_top = 1 - at[0] / factor_,
                                           .pad_left = 1 - at[1] / factor_},
                                 .weights = matrix.pack(type)});
      }
  }

  void run_phases(const Map& x, const Map& y, Worker& worker) const {
    Scope scope(worker.arena);
    const Map phase{x.batch, x.height, x.width, features_, scope.floats(x.rows() * features_)};
    for (int64_t a = 0; a < factor_; ++a)
      for (int64_t b = 0; b < factor_; ++b) {
        convolutions_[a * factor_ + b].run(x, phase, worker);
        worker.runtime.for_each(x.batch * x.height, [&](int64_t row, int) {
          const float* from = phase.data + row * x.width * features_;
          float* to = y.data + ((row * factor_ + a) * y.width + b) * features_;
          for (int64_t i = 0; i < x.width; ++i) {
            std::memcpy(to + i * factor_ * features_, from + i * features_,
                        features_ * sizeof(float));
          }
        });
      }
  }

  void normalize(const Map& y, Worker& worker) const {
    kernels::instance_norm({.batch = y.batch,
                            .positions = y.positions(),
                            .features = y.features,
                            .epsilon = norm_.epsilon,
                            .weight = norm_.weight.data(),
                            .bias = norm_.bias.data(),
                            .activation = kernels::Activation::kRelu,
                            .x = y.data,
                            .y = y.data},
                           worker.runtime);
  }

  Kind kind_;
  int64_t factor_, features_;
  NormWeights norm_;
  std::vector<Convolution> convolutions_;  // one, or one per phase
};

// LayerNorm and QnA, without a skip connection.
class AutoEncoder::QnAResample final : public Layer {
 public:
  QnAResample(const Tensors& tensors, const config::QnAOptions& options)
      : norm_(tensors.in("norm"), config::kBlockNormEpsilon),
        qna_(tensors.in("qna"), options, &norm_) {}

  Map out(const Map& x) const override {
    const auto [height, width] = qna_.out_size(x.height, x.width);
    return {x.batch, height, width, qna_.options().out_features};
  }
  void run(const Map& x, const Map& y, Worker& worker) const override {
    qna_.run(x, y, nullptr, worker);
  }
  size_t bytes() const override { return qna_.bytes(); }

 private:
  NormWeights norm_;
  QnALayer qna_;
};

AutoEncoder::AutoEncoder(const Tensors& tensors, const config::AutoEncoderConfig& c) : config_(c) {
  stem_ = linear(tensors.in("stem"), c.widths.front(), c.channels).pack(tensors.weight_type());
  head_ = linear(tensors.in("head"), c.channels, c.widths.front()).pack(tensors.weight_type());
  const size_t layers = c.widths.size() - 1;
  const auto add_layer = [&](auto& list, const char* part, size_t number, bool qna,
                             const config::QnAOptions& options, ConvLayer::Kind kind, int64_t in,
                             int64_t out) {
    const Tensors of_layer = tensors.in(part, number);
    if (qna) {
      list.push_back(std::make_shared<QnAResample>(of_layer, options));
    } else {
      list.push_back(std::make_shared<ConvLayer>(of_layer, c, in, out, kind));
    }
  };
  using Kind = ConvLayer::Kind;
  const bool encoder_qna = c.encoder == config::EncoderLayer::kQnA;
  const bool decoder_qna = c.decoder == config::DecoderLayer::kQnA;
  const Kind down = c.encoder == config::EncoderLayer::kConvStride ? Kind::kStride : Kind::kPool;
  const Kind upward =
      c.decoder == config::DecoderLayer::kBilinear ? Kind::kBilinear : Kind::kTransposed;
  for (size_t i = 0; i < layers; ++i) {
    add_layer(encoder_, "encoder", i, encoder_qna,
              encoder_qna ? config::encoder_qna(c, i) : config::QnAOptions{}, down, c.widths[i],
              c.widths[i + 1]);
  }
  for (size_t n = 0; n < layers; ++n) {
    const size_t i = layers - 1 - n;  // back to this width
    add_layer(decoder_, "decoder", n, decoder_qna,
              decoder_qna ? config::decoder_qna(c, i) : config::QnAOptions{}, upward,
              c.widths[i + 1], c.widths[i]);
  }
}

size_t AutoEncoder::bytes() const {
  size_t sum = stem_.bytes() + head_.bytes();
  for (const auto* list : {&encoder_, &decoder_})
    for (const auto& layer : *list) sum += layer->bytes();
  return sum;
}

void AutoEncoder::run(const ImageBatch& images, float* out, Worker& worker,
                      Visitor* visitor) const {
  Scope scope(worker.arena);
  // Shapes first: the map goes to and fro between two pieces of the size of the largest.
  Map map{images.batch, images.height, images.width, config_.widths.front()};
  int64_t stride = config_.stride();
  const auto positions = [&](int64_t pixels) { return up(pixels, stride); };
  int64_t largest = map.size();
  Map shape = map;
  for (const auto& layer : encoder_)
    largest = std::max(largest, (shape = layer->out(shape)).size());
  for (const auto& layer : decoder_) {
    largest = std::max(largest, (shape = layer->out(shape)).size());
    stride /= config_.factor;
    shape.height = positions(images.height);
    shape.width = positions(images.width);
  }
  float* pieces[2] = {scope.floats(largest), scope.floats(largest)};
  int piece = 0;
  map.data = pieces[0];
  dense(images.pixels, map.rows(), stem_, map.data, worker);
  const auto step = [&](const Layer& layer) {
    Map y = layer.out(map);
    y.data = pieces[1 - piece];
    layer.run(map, y, worker);
    map = y;
    piece = 1 - piece;
  };
  for (size_t i = 0; i < encoder_.size(); ++i) {
    step(*encoder_[i]);
    const auto number = static_cast<int64_t>(i);
    if (visitor != nullptr && visitor->wants_stage(number)) {
      visitor->stage(number, {map.batch, map.height, map.width, map.features, map.data});
    }
    if (visitor != nullptr && visitor->done()) return;
  }
  stride = config_.stride();
  for (const auto& layer : decoder_) {
    step(*layer);
    stride /= config_.factor;
    // What the image does not need is cut at once, not when it has become large.
    const int64_t height = positions(images.height), width = positions(images.width);
    if (height == map.height && width == map.width) continue;
    for (int64_t b = 0; b < map.batch; ++b)
      for (int64_t y = 0; y < height; ++y) {
        std::memmove(map.data + (b * height + y) * width * map.features,
                     map.data + (b * map.height + y) * map.width * map.features,
                     width * map.features * sizeof(float));
      }
    map.height = height;
    map.width = width;
  }
  dense(map.data, map.rows(), head_, out, worker);
}

}  // namespace qna::engine
