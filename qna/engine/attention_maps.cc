#include "qna/engine/attention_maps.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qna::engine {
namespace {

using kernels::TapRange;
using kernels::WindowShape;

// The softmax of every window of a layer with learned queries, one window at a time.
class WindowSoftmax {
 public:
  WindowSoftmax(const ScoreTables& tables, const Map& x, Worker& worker)
      : tables_(tables),
        shape_(window_shape(tables.options, x.batch, x.height, x.width)),
        columns_(shape_.scores()),
        scores_(x.rows() * columns_) {
    Matrix matrix{columns_, x.features, Floats(columns_ * x.features)};
    for (int64_t c = 0; c < x.features; ++c)
      for (int64_t s = 0; s < columns_; ++s) {
        matrix.weight[s * x.features + c] = tables.score_weight[c * columns_ + s];
      }
    dense(x.data, x.rows(), matrix.pack(kernels::WeightType::kFloat32), scores_.data(), worker,
          {.norm = tables.norm});
  }

  const WindowShape& shape() const { return shape_; }
  WindowScores scores() const {
    return {.shape = shape_,
            .scores = scores_,
            .bias = {tables_.bias.begin(), tables_.bias.end()},
            .scale = {tables_.tap_weights.begin(), tables_.tap_weights.end()}};
  }

  // visit(tap row, tap column, pixel row, pixel column, p [L, heads]) for every tap of window (i,
  // j) that lies inside the map.
  template <typename Visit>
  void for_each_tap(int64_t image, int64_t i, int64_t j, const Visit& visit) const {
    const WindowShape& s = shape_;
    const int64_t top = i * s.stride_h - s.pad_top, left = j * s.stride_w - s.pad_left;
    const TapRange rows = kernels::valid_taps(top, s.kernel_h, s.dilation_h, s.height);
    const TapRange columns = kernels::valid_taps(left, s.kernel_w, s.dilation_w, s.width);
    const auto walk = [&](const auto& use) {
      for (int64_t ty = rows.begin; ty < rows.end; ++ty)
        for (int64_t tx = columns.begin; tx < columns.end; ++tx) {
          use(ty, tx, top + ty * s.dilation_h, left + tx * s.dilation_w);
        }
    };
    const auto score = [&](int64_t ty, int64_t tx, int64_t y, int64_t x, int64_t k) {
      const float bias =
          tables_.bias.empty() ? 0 : tables_.bias[(ty * s.kernel_w + tx) * columns_ + k];
      return scores_[((image * s.height + y) * s.width + x) * columns_ + k] + bias;
    };
    std::vector<float> largest(columns_, -std::numeric_limits<float>::infinity());
    std::vector<float> sum(columns_, 0.0f), p(columns_);
    walk([&](int64_t ty, int64_t tx, int64_t y, int64_t x) {
      for (int64_t k = 0; k < columns_; ++k) {
        largest[k] = std::max(largest[k], score(ty, tx, y, x, k));
      }
    });
    walk([&](int64_t ty, int64_t tx, int64_t y, int64_t x) {
      for (int64_t k = 0; k < columns_; ++k) {
        sum[k] += std::exp(score(ty, tx, y, x, k) - largest[k]);
      }
    });
    walk([&](int64_t ty, int64_t tx, int64_t y, int64_t x) {
      for (int64_t k = 0; k < columns_; ++k) {
        p[k] = std::exp(score(ty, tx, y, x, k) - largest[k]) / sum[k];
      }
      visit(ty, tx, y, x, p);
    });
  }

  // w of one tap and head, from its p.
  float weight(int64_t ty, int64_t tx, int64_t head, const std::vector<float>& p) const {
    float sum = 0;
    for (int64_t l = 0; l < shape_.queries; ++l) {
      const int64_t k = l * shape_.heads + head;
      const int64_t at = (ty * shape_.kernel_w + tx) * columns_ + k;
      sum += p[k] * (tables_.tap_weights.empty() ? 1.0f : tables_.tap_weights[at]);
    }
    return sum;
  }

 private:
  const ScoreTables& tables_;
  const WindowShape shape_;
  const int64_t columns_;      // L x heads
  std::vector<float> scores_;  // [B, H, W, L, heads]
};

AttentionMaps maps_of(const WindowSoftmax& softmax, Worker& worker) {
  const WindowShape& s = softmax.shape();
  AttentionMaps maps{s.batch, s.queries, s.heads, s.height, s.width, {}, {}};
  const int64_t pixels = s.height * s.width;
  maps.attention.resize(s.batch * s.scores() * pixels);
  maps.weight.resize(s.batch * s.heads * pixels);
  worker.runtime.for_each(s.batch, [&](int64_t b, int) {
    for (int64_t i = 0; i < s.out_height(); ++i)
      for (int64_t j = 0; j < s.out_width(); ++j) {
        softmax.for_each_tap(
            b, i, j,
            [&](int64_t ty, int64_t tx, int64_t y, int64_t x, const std::vector<float>& p) {
              const int64_t pixel = y * s.width + x;
              for (int64_t k = 0; k < s.scores(); ++k) {
                maps.attention[(b * s.scores() + k) * pixels + pixel] += p[k];
              }
              for (int64_t h = 0; h < s.heads; ++h) {
                maps.weight[(b * s.heads + h) * pixels + pixel] +=
                    std::abs(softmax.weight(ty, tx, h, p));
              }
            });
      }
  });
  return maps;
}

AttentionKernels kernels_of(const WindowSoftmax& softmax, int64_t side) {
  const WindowShape& s = softmax.shape();
  AttentionKernels out{.kernel_h = s.kernel_h, .kernel_w = s.kernel_w};
  for (const int64_t weights : {s.out_height() * s.kernel_h, s.out_width() * s.kernel_w}) {
    out.every = std::max(out.every, (weights + side - 1) / side);
  }
  out.rows = (s.out_height() + out.every - 1) / out.every;
  out.columns = (s.out_width() + out.every - 1) / out.every;
  const int64_t taps = s.taps(), windows = out.rows * out.columns;
  out.attention.resize(s.batch * s.scores() * windows * taps);
  out.weight.resize(s.batch * s.heads * windows * taps);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t n = 0; n < windows; ++n) {
      const int64_t i = n / out.columns * out.every, j = n % out.columns * out.every;
      softmax.for_each_tap(
          b, i, j, [&](int64_t ty, int64_t tx, int64_t, int64_t, const std::vector<float>& p) {
            const int64_t tap = ty * s.kernel_w + tx;
            for (int64_t k = 0; k < s.scores(); ++k) {
              out.attention[((b * s.scores() + k) * windows + n) * taps + tap] = p[k];
            }
            for (int64_t h = 0; h < s.heads; ++h) {
              out.weight[((b * s.heads + h) * windows + n) * taps + tap] =
                  softmax.weight(ty, tx, h, p);
            }
          });
    }
  return out;
}

// One window of self-attention and one head: adds to every key what the queries give it.
struct SelfAttentionWindow {
  const float* qkv;   // of the image, [H, W, 3, heads, dim]
  const float* bias;  // of the head, by key minus query
  int64_t width, heads, dim, head;
  int64_t top, left, rows, columns;
  int64_t bias_h, bias_w;  // the window that the table is for

  void add_to(float* map) const {
    const int64_t features = heads * dim, tokens = rows * columns;
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    const auto pixel = [&](int64_t t) { return (top + t / columns) * width + left + t % columns; };
    std::vector<float> scores(tokens);
    for (int64_t q = 0; q < tokens; ++q) {
      const float* query = qkv + pixel(q) * 3 * features + head * dim;
      float largest = -std::numeric_limits<float>::infinity();
      for (int64_t k = 0; k < tokens; ++k) {
        const float* key = qkv + pixel(k) * 3 * features + features + head * dim;
        float sum = 0;
        for (int64_t d = 0; d < dim; ++d) sum += query[d] * key[d];
        const int64_t dy = bias_h - 1 + k / columns - q / columns;
        const int64_t dx = bias_w - 1 + k % columns - q % columns;
        scores[k] = sum * scale + bias[dy * (2 * bias_w - 1) + dx];
        largest = std::max(largest, scores[k]);
      }
      float total = 0;
      for (float& score : scores) total += score = std::exp(score - largest);
      for (int64_t k = 0; k < tokens; ++k) map[pixel(k)] += scores[k] / total;
    }
  }
};

// Self-attention on one map: the projected map and the table of its windows.
class TokenSoftmax {
 public:
  TokenSoftmax(const WindowSelfAttention& attention, const Map& x, Worker& worker)
      : x_(x),
        heads_(attention.options().heads),
        window_(attention.window_on(x.height, x.width)),
        table_(attention.options().global ? window_ : attention.options().window),
        qkv_(3 * x.size()) {
    Scope scope(worker.arena);
    const float* bias = attention.bias_for(window_, scope);
    bias_.assign(bias, bias + heads_ * table_size());
    attention.project_in(x, qkv_.data(), worker);
  }

  AttentionMaps maps(Worker& worker) const {
    AttentionMaps maps{x_.batch, 1, heads_, x_.height, x_.width, {}, {}};
    maps.attention.resize(x_.batch * heads_ * x_.positions());
    worker.runtime.for_each(x_.batch * heads_, [&](int64_t task, int) {
      for (int64_t top = 0; top < x_.height; top += window_[0])
        for (int64_t left = 0; left < x_.width; left += window_[1]) {
          window(task / heads_, task % heads_, top, left)
              .add_to(maps.attention.data() + task * x_.positions());
        }
    });
    return maps;
  }

  TokenScores scores() const {
    const int64_t features = x_.features, dim = features / heads_;
    TokenScores out{.window = window_, .table = table_, .dim = dim, .bias = bias_};
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    for (int64_t pixel = 0; pixel < x_.rows(); ++pixel) {
      const float* from = qkv_.data() + pixel * 3 * features;
      for (int64_t c = 0; c < features; ++c) out.queries.push_back(from[c] * scale);
      out.keys.insert(out.keys.end(), from + features, from + 2 * features);
    }
    return out;
  }

 private:
  int64_t table_size() const { return (2 * table_[0] - 1) * (2 * table_[1] - 1); }

  SelfAttentionWindow window(int64_t image, int64_t head, int64_t top, int64_t left) const {
    return {.qkv = qkv_.data() + image * x_.positions() * 3 * x_.features,
            .bias = bias_.data() + head * table_size(),
            .width = x_.width,
            .heads = heads_,
            .dim = x_.features / heads_,
            .head = head,
            .top = top,
            .left = left,
            .rows = std::min(window_[0], x_.height - top),
            .columns = std::min(window_[1], x_.width - left),
            .bias_h = table_[0],
            .bias_w = table_[1]};
  }

  const Map& x_;
  const int64_t heads_;
  const std::array<int64_t, 2> window_;
  const std::array<int64_t, 2> table_;  // the window that the bias is for
  std::vector<float> qkv_;              // [B, H, W, 3, heads, dim]
  std::vector<float> bias_;             // [heads, table]
};

LayerAttention taken(const AttentionLayer& layer, const WindowSoftmax& softmax, int64_t kernel_side,
                     Visitor& visitor, Worker& worker) {
  return {.layer = layer,
          .maps = maps_of(softmax, worker),
          .kernels = kernel_side > 0 ? kernels_of(softmax, kernel_side) : AttentionKernels{},
          .window_scores = visitor.wants_scores() ? softmax.scores() : WindowScores{}};
}

}  // namespace

LayerAttention attention_of(const AttentionLayer& layer, const Block& block, const Map& x,
                            Visitor& visitor, Worker& worker) {
  if (block.qna() != nullptr) {
    return taken(layer, WindowSoftmax(block.qna()->scores(), x, worker), visitor.kernel_side(),
                 visitor, worker);
  }
  const TokenSoftmax softmax(*block.attention(), x, worker);
  return {.layer = layer,
          .maps = softmax.maps(worker),
          .token_scores = visitor.wants_scores() ? softmax.scores() : TokenScores{}};
}

LayerAttention head_attention_of(const AttentionLayer& layer, const ScoreTables& tables,
                                 const Map& x, Visitor& visitor, Worker& worker) {
  // Its one window is the map, so the map says all and there are no kernels.
  return taken(layer, WindowSoftmax(tables, x, worker), /*kernel_side=*/0, visitor, worker);
}

}  // namespace qna::engine
