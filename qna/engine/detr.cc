#include "qna/engine/detr.h"

#include <cmath>
#include <numbers>

namespace qna::engine {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The sine code of one axis for a place from 0 to 1: n / 2 pairs of a sine and a cosine. float32
// where torch has it.
void waves(float place, const config::SineOptions& sines, int64_t n, float* out) {
  const float turns = static_cast<float>(2 * std::numbers::pi * sines.waves);
  const float scaled = place * turns;
  for (int64_t i = 0; i < n; i += 2) {
    const float wavelength =
        static_cast<float>(std::pow(sines.temperature, static_cast<double>(i) / n));
    const float phase = scaled / wavelength;
    out[i] = std::sin(phase);
    out[i + 1] = std::cos(phase);
  }
}

// 1, 2, 3, ... inside the image, divided by its last: up to 1, whatever the size.
float relative_place(float place, float last, const config::SineOptions& sines) {
  return (sines.centred ? place - 0.5f : place) / (last + 1e-6f);
}

}  // namespace

Detr::Detr(const Tensors& tensors, const config::DetrConfig& c) : config_(c) {
  const Tensors backbone = tensors.in("backbone.0");
  if (const auto* resnet = std::get_if<config::ResNetConfig>(&c.backbone)) {
    resnet_ = std::make_unique<ResNet>(backbone.in("body"), *resnet);
  } else {
    qna_vit_ =
        std::make_unique<QnAViT>(backbone.in("body"), std::get<config::QnAViTConfig>(c.backbone));
    backbone_norm_.emplace(backbone.in("norm"), config::kBlockNormEpsilon);
  }
  Matrix project = linear(tensors.in("input_proj"), c.hidden, c.backbone_features());
  if (backbone_norm_) project.fold_norm(*backbone_norm_);
  input_proj_ = project.pack(tensors.weight_type());
  const config::TransformerOptions options = config::transformer_options(c);
  encoder_ = std::make_unique<Encoder>(tensors.in("transformer.encoder"), options);
  decoder_ = std::make_unique<Decoder>(tensors.in("transformer.decoder"), options);
  query_embed_ = tensors.in(c.anchors ? "refpoint_embed" : "query_embed").get("weight");
  if (c.positions == config::PositionKind::kLearned) {
    row_embed_ = tensors.in("backbone.1.row_embed").get("weight");
    col_embed_ = tensors.in("backbone.1.col_embed").get("weight");
  }
  class_embed_ =
      linear(tensors.in("class_embed"), c.classes + 1, c.hidden).pack(tensors.weight_type());
  for (size_t i = 0; i < 3; ++i) {
    box_layers_.push_back(linear(tensors.in("bbox_embed.layers", i), i < 2 ? c.hidden : 4, c.hidden)
                              .pack(tensors.weight_type()));
  }
}

size_t Detr::bytes() const {
  size_t sum = resnet_ ? resnet_->bytes() : qna_vit_->bytes();
  for (const auto& layer : box_layers_) sum += layer.bytes();
  return sum + input_proj_.bytes() + class_embed_.bytes() + encoder_->bytes() + decoder_->bytes();
}

Map Detr::last_map(const ImageBatch& images) const {
  return resnet_ ? resnet_->last_map(images) : qna_vit_->last_map(images);
}

void Detr::positions(const Map& map, Mask mask, float* code, Worker& worker) const {
  const int64_t n = config_.hidden / 2;
  if (config_.positions == config::PositionKind::kLearned) {
    for (int64_t y = 0; y < map.height; ++y)
      for (int64_t x = 0; x < map.width; ++x) {
        // Places beyond the table share its last vector, so that any map has a code.
        const int64_t row = std::min(y, config::kLearnedPlaces - 1);
        const int64_t column = std::min(x, config::kLearnedPlaces - 1);
        float* to = code + (y * map.width + x) * 2 * n;
        std::copy_n(col_embed_.data() + column * n, n, to);
        std::copy_n(row_embed_.data() + row * n, n, to + n);
      }
    return;
  }
  const config::SineOptions sines = config::sine_options(config_);
  Scope scope(worker.arena);
  if (mask == nullptr) {
    // A row's code is the same in all columns, and a column's in all rows.
    const auto axis = [&](int64_t size) {
      float* codes = scope.floats(size * n);
      for (int64_t i = 0; i < size; ++i) {
        waves(relative_place(static_cast<float>(i + 1), static_cast<float>(size), sines), sines, n,
              codes + i * n);
      }
      return codes;
    };
    const float* rows = axis(map.height);
    const float* columns = axis(map.width);
    for (int64_t y = 0; y < map.height; ++y)
      for (int64_t x = 0; x < map.width; ++x) {
        float* to = code + (y * map.width + x) * 2 * n;
        std::copy_n(rows + y * n, n, to);
        std::copy_n(columns + x * n, n, to + n);
      }
    return;
  }
  // Places count only what the mask shows, along each row and column.
  for (int64_t b = 0; b < map.batch; ++b) {
    const uint8_t* shown = mask + b * map.positions();
    const auto count = [&](int64_t y, int64_t x, int axis) {
      int64_t sum = 0;
      for (int64_t i = 0; i <= (axis == 0 ? y : x); ++i) {
        sum += shown[axis == 0 ? i * map.width + x : y * map.width + i] != 0;
      }
      return static_cast<float>(sum);
    };
    for (int64_t y = 0; y < map.height; ++y)
      for (int64_t x = 0; x < map.width; ++x) {
        float* to = code + ((b * map.height + y) * map.width + x) * 2 * n;
        waves(relative_place(count(y, x, 0), count(map.height - 1, x, 0), sines), sines, n, to);
        waves(relative_place(count(y, x, 1), count(y, map.width - 1, 1), sines), sines, n, to + n);
      }
  }
}

// What the decoder's blocks add to their queries: learned vectors, the same in all blocks; or the
// position codes of boxes, which every block refines.
class Detr::Queries {
 public:
  Queries(const Detr& model, int64_t batch, Scope& scope, Worker& worker)
      : model_(model),
        rows_(batch * model.config_.queries),
        codes_(scope.floats(rows_ * model.config_.hidden)),
        worker_(worker) {
    const int64_t one = static_cast<int64_t>(model.query_embed_.size());
    anchored_ = model.config_.anchors;
    anchors_ = anchored_ ? scope.floats(batch * one) : nullptr;
    for (int64_t b = 0; b < batch; ++b) {
      std::copy_n(model.query_embed_.data(), one, (anchored_ ? anchors_ : codes_) + b * one);
    }
    if (anchored_) encode();
  }

  float* codes() { return codes_; }

  // The boxes that a block's result says, [rows, 4], before the sigmoid; refines the anchors.
  void boxes_of(const float* result, float* boxes) {
    Scope scope(worker_.arena);
    const int64_t hidden = model_.config_.hidden;
    float* a = scope.floats(rows_ * hidden);
    float* b = scope.floats(rows_ * hidden);
    const DenseOptions relu{.activation = kernels::Activation::kRelu};
    dense(result, rows_, model_.box_layers_[0], a, worker_, relu);
    dense(a, rows_, model_.box_layers_[1], b, worker_, relu);
    dense(b, rows_, model_.box_layers_[2], boxes, worker_);
    if (!anchored_) return;
    for (int64_t i = 0; i < 4 * rows_; ++i) anchors_[i] = boxes[i] += anchors_[i];
    encode();
  }

  bool anchored() const { return anchored_; }

 private:
  void encode() {
    const int64_t n = model_.config_.hidden / 2;
    const config::SineOptions sines = config::sine_options(model_.config_);
    for (int64_t i = 0; i < rows_; ++i) {
      const auto place = [&](int axis) {
        return static_cast<float>(sigmoid(anchors_[4 * i + axis]));
      };
      waves(place(1), sines, n, codes_ + 2 * i * n);
      waves(place(0), sines, n, codes_ + (2 * i + 1) * n);
    }
  }

  const Detr& model_;
  const int64_t rows_;
  float* const codes_;
  Worker& worker_;
  bool anchored_;
  float* anchors_;  // centre and size, before the sigmoid
};

std::vector<AttentionLayer> Detr::attention_layers() const {
  return qna_vit_ ? qna_vit_->attention_layers() : std::vector<AttentionLayer>();
}

void Detr::run(const ImageBatch& images, const Output& out, Worker& worker,
               Visitor* visitor) const {
  Scope scope(worker.arena);
  Map map = last_map(images);
  map.features = config_.hidden;
  map.data = scope.floats(map.size());
  {
    Scope backbone_scope(worker.arena);
    Map body = last_map(images);
    body.data = backbone_scope.floats(body.size());
    if (resnet_) {
      resnet_->run_features(images, body, worker);
    } else if (!qna_vit_->run_features(images, body, worker, visitor)) {
      return;
    }
    dense(body.data, body.rows(), input_proj_, map.data, worker,
          {.norm = backbone_norm_ ? backbone_norm_->kernel() : kernels::Norm{}});
  }
  const Mask mask =
      every_nth(images.mask, images.batch, images.height, images.width, stride(), scope);
  run_transformer(map, mask, out, worker, visitor);
}

void Detr::run_transformer(const Map& map, Mask mask, const Output& out, Worker& worker,
                           Visitor* visitor) const {
  Scope scope(worker.arena);
  const bool by_image = mask != nullptr && config_.positions == config::PositionKind::kSine;
  const int64_t period = map.positions() * map.features * (by_image ? map.batch : 1);
  float* codes = scope.floats(period);
  positions(map, mask, codes, worker);
  encoder_->run(map, codes, period, mask, worker);
  if (visitor != nullptr && visitor->wants_encoded()) {
    visitor->encoded({map.batch, map.height, map.width, map.features, map.data});
    if (visitor->done()) return;
  }
  float* keys = scope.floats(map.size());
  std::copy_n(map.data, map.size(), keys);
  add(keys, codes, map.size(), period, worker.runtime);

  const int64_t queries = config_.queries, classes = config_.classes + 1;
  const int64_t rows = map.batch * queries;
  Queries object_queries(*this, map.batch, scope, worker);
  const bool looks = visitor != nullptr && visitor->wants_decoder_attention();
  float* attention = looks ? scope.floats(rows * map.positions()) : nullptr;
  float* boxes = scope.floats(4 * rows);
  const auto result = [&](size_t layer, const float* state) {
    const bool last = layer + 1 == decoder_->layers();
    const bool wanted = (last || out.every_block) && out.logits != nullptr;
    if (wanted || object_queries.anchored()) object_queries.boxes_of(state, boxes);
    if (!wanted) return;
    const int64_t block = out.every_block ? static_cast<int64_t>(layer) : 0;
    const int64_t first = (block * out.total + out.first) * queries;
    dense(state, rows, class_embed_, out.logits + first * classes, worker);
    float* to = out.boxes + first * 4;
    for (int64_t i = 0; i < 4 * rows; ++i) to[i] = static_cast<float>(sigmoid(boxes[i]));
  };
  decoder_->run({.batch = map.batch,
                 .positions = map.positions(),
                 .values = map.data,
                 .keys = keys,
                 .mask = mask},
                object_queries.codes(), queries, result, attention, worker);
  if (looks) {
    visitor->decoder_attention({map.batch, queries, map.positions(), 1, attention}, map.height,
                               map.width);
  }
}

}  // namespace qna::engine
