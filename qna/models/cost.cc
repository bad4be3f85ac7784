#include "qna/models/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qna::models {
namespace {

int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

constexpr double kNormFlops = 8;
constexpr double kActivationFlops = 10;
constexpr double kSoftmaxFlops = 5;

struct Map {
  int64_t height, width;
  int64_t count() const { return height * width; }
  Map half() const { return {up(height, 2), up(width, 2)}; }
};

void add_norm(Cost& c, double elements, int64_t features) {
  c.parameters += 2 * features;
  c.flops += kNormFlops * elements;
}

void add_product(Cost& c, double rows, int64_t in, int64_t out, bool bias) {
  c.parameters += in * out + (bias ? out : 0);
  c.flops += rows * (2.0 * in * out + (bias ? out : 0));
}

// The second half of a block, with the sums of both residuals and layer scales.
void add_mlp(Cost& c, const QnAViTConfig& config, double rows, int64_t features) {
  const int64_t hidden = std::llround(config.mlp_ratio * features);
  add_norm(c, rows * features, features);
  add_product(c, rows, features, hidden, true);
  c.flops += kActivationFlops * rows * hidden;
  add_product(c, rows, hidden, features, true);
  c.flops += 2 * rows * features;
  if (config.layer_scale > 0) {
    c.parameters += 2 * features;
    c.flops += 2 * rows * features;
  }
}

int64_t scale_parameters(nn::AttentionScale scale, int64_t taps, int64_t scores) {
  switch (scale) {
    case nn::AttentionScale::kPerTap:
    case nn::AttentionScale::kOnes:
      return taps * scores;
    case nn::AttentionScale::kPerQuery:
      return scores;
    default:
      return 0;
  }
}

void add_qna(Cost& c, nn::AttentionScale scale, const Map& in, const Map& out, int64_t in_features,
             int64_t features, int64_t heads, int64_t queries, int64_t taps) {
  const int64_t scores = queries * heads;
  const double pixels = static_cast<double>(in.count());
  const double windows = static_cast<double>(out.count());
  c.parameters += queries * features + in_features * features + taps * scores +
                  scale_parameters(scale, taps, scores);
  c.flops += 2.0 * queries * in_features * features;       // Wk q
  c.flops += pixels * (2.0 * in_features + 1) * scores;    // scores and their exponentials
  add_product(c, pixels, in_features, features, false);    // values
  c.flops += pixels * queries * features;                  // exp(score) v
  c.flops += windows * taps * 2.0 * (queries * features);  // window sums
  c.flops += windows * (taps * 2.0 * scores + 2.0 * queries * features);  // their divisors
  add_product(c, windows, features, features, false);
}

void add_attention(Cost& c, const StageConfig& s, const Map& map, std::array<int64_t, 2> window,
                   std::array<int64_t, 2> table, int64_t features) {
  const double tokens = static_cast<double>(map.count());
  add_product(c, tokens, features, 3 * features, false);
  double pairs = 0;  // queries times keys, with the smaller windows at the edges
  for (int64_t y = 0; y < map.height; y += window[0])
    for (int64_t x = 0; x < map.width; x += window[1]) {
      const double n = static_cast<double>(std::min(window[0], map.height - y)) *
                       static_cast<double>(std::min(window[1], map.width - x));
      pairs += n * n;
    }
  c.flops += pairs * (4.0 * features + (kSoftmaxFlops + 1) * s.attention_heads);
  c.parameters += (2 * table[0] - 1) * (2 * table[1] - 1) * s.attention_heads;
  add_product(c, tokens, features, features, false);
}

}  // namespace

std::vector<LayerCost> layer_costs(const QnAViTConfig& config, int64_t height, int64_t width) {
  std::vector<LayerCost> rows;
  const auto push = [&](const std::string& name, const std::string& description, const Map& map,
                        int64_t features, const Cost& cost, int64_t stage) {
    rows.push_back(
        {name, description, {map.height, map.width}, features, cost.parameters, cost.flops, stage});
  };

  const int64_t base = config.base_dim;
  Map map{up(height, config.stem_stride()), up(width, config.stem_stride())};
  {
    Cost cost;
    if (config.stem == StemKind::kPatch) {
      const int64_t p = config.patch_size;
      add_product(cost, map.count(), p * p * config.in_channels, base, false);
      push("stem", fmt::format("{}x{} patches", p, p), map, base, cost, -1);
    } else {
      const double pixels = static_cast<double>(up(height, 2) * up(width, 2));
      add_product(cost, pixels, 49 * config.in_channels, base, false);
      cost.parameters += 2 * base;
      cost.flops += pixels * base * (2 + kActivationFlops) + 9.0 * map.count() * base;
      push("stem", "7x7 convolution, BatchNorm, 3x3 max-pooling", map, base, cost, -1);
    }
  }

  for (size_t i = 0; i < config.stages.size(); ++i) {
    const StageConfig& s = config.stages[i];
    const int64_t features = config.features(i);
    const int64_t taps = s.kernel_size[0] * s.kernel_size[1];
    const std::string stage = fmt::format("stages.{}", i);
    const double elements = static_cast<double>(map.count() * features);
    const bool global = s.window[0] == 0;
    const auto trained = [&](int axis) { return up(config.image_size[axis], config.stride(i)); };
    const std::array<int64_t, 2> table =
        global ? std::array<int64_t, 2>{trained(0), trained(1)} : s.window;
    for (int64_t n = 0; n < s.attention_blocks + s.qna_blocks; ++n) {
      Cost cost;
      add_norm(cost, elements, features);
      std::string description;
      if (n < s.attention_blocks) {
        const std::array<int64_t, 2> window =
            global ? std::array<int64_t, 2>{map.height, map.width} : s.window;
        add_attention(cost, s, map, window, table, features);
        description = fmt::format("self-attention {}, {} heads",
                                  global ? "global" : fmt::format("{}x{}", window[0], window[1]),
                                  s.attention_heads);
      } else {
        add_qna(cost, config.attention_scale, map, map, features, features, s.qna_heads, s.queries,
                taps);
        description = fmt::format("QnA {}x{}, {} heads, {} queries", s.kernel_size[0],
                                  s.kernel_size[1], s.qna_heads, s.queries);
      }
      add_mlp(cost, config, static_cast<double>(map.count()), features);
      push(fmt::format("{}.blocks.{}", stage, n), description, map, features, cost,
           static_cast<int64_t>(i));
    }
    if (i + 1 == config.stages.size()) continue;

    const Map next = map.half();
    const double windows = static_cast<double>(next.count());
    Cost cost;
    std::string description;
    switch (config.downsample) {
      case Downsample::kQnA:
        add_norm(cost, elements, features);
        add_qna(cost, config.attention_scale, map, next, features, 2 * features, 2 * s.qna_heads,
                s.queries, taps);
        if (config.downsample_skip == DownsampleSkip::kAveragePool) {
          cost.flops += windows * taps * features;
        }
        add_product(cost, windows, features, 2 * features, false);
        add_mlp(cost, config, windows, 2 * features);
        description = fmt::format("QnA {}x{} stride 2, {} heads, {} queries", s.kernel_size[0],
                                  s.kernel_size[1], 2 * s.qna_heads, s.queries);
        break;
      case Downsample::kPatchMerging:
        add_norm(cost, windows * 4 * features, 4 * features);
        add_product(cost, windows, 4 * features, 2 * features, false);
        description = "2x2 patch merging";
        break;
      case Downsample::kConvPool:
        add_product(cost, static_cast<double>(map.count()), 9 * features, 2 * features, true);
        add_norm(cost, 2 * elements, 2 * features);
        cost.flops += 9 * windows * 2 * features;
        description = "3x3 convolution, LayerNorm, 3x3 max-pooling";
        break;
    }
    map = next;
    push(stage + ".downsample", description, map, 2 * features, cost, static_cast<int64_t>(i));
  }

  if (config.classes > 0) {
    const size_t last = config.stages.size() - 1;
    const int64_t features = config.features(last);
    Cost cost;
    add_norm(cost, static_cast<double>(map.count() * features), features);
    std::string description = "mean";
    cost.flops += static_cast<double>(map.count() * features);
    if (config.head != HeadKind::kGap) {
      const nn::QnAOptions defaults;
      const int64_t taps = up(config.image_size[0], config.stride(last)) *
                           up(config.image_size[1], config.stride(last));
      // The window is the map at hand, the tables are those of the trained size.
      const int64_t heads = config.stages[last].qna_heads;
      add_qna(cost, defaults.attention_scale, map, {1, 1}, features, features, heads,
              defaults.queries, map.count());
      cost.parameters += 2 * (taps - map.count()) * defaults.queries * heads;
      description =
          config.head == HeadKind::kQnAv1 ? "QnA over the map" : "QnA over the map + mean";
    }
    add_product(cost, 1, features, config.classes, true);
    push("head", fmt::format("{}, {} classes", description, config.classes), {1, 1}, config.classes,
         cost, -1);
  }
  return rows;
}

Cost total_cost(const std::vector<LayerCost>& costs) {
  Cost total;
  for (const LayerCost& row : costs) {
    total.parameters += row.parameters;
    total.flops += row.flops;
  }
  return total;
}

}  // namespace qna::models
