#include "qna/config/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "qna/config/attention_tiles.h"
#include "qna/config/cost_parts.h"
#include "qna/config/efficientnet_stem.h"

namespace qna::config {
namespace {

using namespace cost_parts;

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

// A layer that mixes neighbours, in its place.
struct Site {
  const QnAViTConfig& config;
  const StageConfig& stage;
  Map in;                // the map it sees
  int64_t features;      // of that map
  int64_t stride;        // 2: it halves the map and doubles features and heads
  bool shifted = false;  // windows only

  Map out() const { return stride == 1 ? in : in.half(); }
  int64_t out_features() const { return features * stride; }
  int64_t heads() const { return stage.qna_heads * stride; }
  int64_t taps() const { return stage.kernel_size[0] * stage.kernel_size[1]; }
  std::string text() const {  // "3x3 stride 2, 16 heads"
    return fmt::format("{}x{}{}, {} heads", stage.kernel_size[0], stage.kernel_size[1],
                       stride == 2 ? " stride 2" : "", heads());
  }
};

// Attention with a query per output pixel, between and with its products. pairs: of queries and
// keys.
void add_attention(Cost& c, const Map& in, const Map& out, int64_t in_features, int64_t features,
                   int64_t heads, double pairs, int64_t table) {
  const double queries = static_cast<double>(out.count());
  add_product(c, queries, in_features, features, false);
  add_product(c, static_cast<double>(in.count()), in_features, 2 * features, false);
  c.flops += pairs * (4.0 * features + (kSoftmaxFlops + 1) * heads);
  c.parameters += table * heads;
  add_product(c, queries, features, features, false);
}

double tile_pairs(const Map& map, const std::array<TileGeometry, 2>& geometry) {
  double pairs = 1;
  for (int axis = 0; axis < 2; ++axis) {
    double along = 0;
    for (const auto& span : tile_spans(axis == 0 ? map.height : map.width, geometry[axis])) {
      along += static_cast<double>(span.tiles * span.queries * span.keys);
    }
    pairs *= along;
  }
  return pairs;
}

// window: 0 is the whole map, with a table for the map `trained`.
std::string add_windows(Cost& c, const Site& site, const Map& trained) {
  const auto& window = site.stage.window;
  const bool global = window[0] == 0;
  const std::array<int64_t, 2> sizes = {site.in.height, site.in.width};
  const std::array<int64_t, 2> table =
      global ? std::array<int64_t, 2>{trained.height, trained.width} : window;
  std::array<TileGeometry, 2> geometry;
  for (int axis = 0; axis < 2; ++axis) {
    geometry[axis].block = global ? sizes[axis] : window[axis];
    const bool shifted = site.shifted && sizes[axis] > window[axis];
    geometry[axis].shift = shifted ? window[axis] / 2 : 0;
  }
  add_attention(c, site.in, site.in, site.features, site.features, site.stage.attention_heads,
                tile_pairs(site.in, geometry), (2 * table[0] - 1) * (2 * table[1] - 1));
  return fmt::format("self-attention {}{}, {} heads",
                     global ? "global" : fmt::format("{}x{}", window[0], window[1]),
                     site.shifted ? " shifted" : "", site.stage.attention_heads);
}

std::string add_qna(Cost& c, const Site& s) {
  add_qna(c, s.config.attention_scale, s.in, s.out(), s.features, s.out_features(), s.heads(),
          s.stage.queries, s.taps());
  return fmt::format("QnA {}, {} queries", s.text(), s.stage.queries);
}

std::string add_sasa(Cost& c, const Site& s) {
  add_attention(c, s.in, s.out(), s.features, s.out_features(), s.heads(),
                static_cast<double>(s.out().count() * s.taps()), s.taps());
  return "SASA " + s.text();
}

std::string add_halo(Cost& c, const Site& s) {
  std::array<TileGeometry, 2> geometry;
  int64_t table = 1;
  for (int axis = 0; axis < 2; ++axis) {
    TileGeometry& g = geometry[axis];
    g = {.block = HaloAttentionOptions{}.block[axis],
         .halo = s.stage.kernel_size[axis] / 2,
         .stride = s.stride};
    table *= 2 * g.block + 2 * g.halo - g.stride;
  }
  add_attention(c, s.in, s.out(), s.features, s.out_features(), s.heads(),
                tile_pairs(s.in, geometry), table);
  return "halo " + s.text();
}

std::string add_convolution(Cost& c, const Site& s, bool depthwise) {
  const double windows = static_cast<double>(s.out().count());
  if (depthwise) {
    add_product(c, windows, s.taps(), s.features, false);
    add_product(c, windows, s.features, s.out_features(), false);
  } else {
    add_product(c, windows, s.taps() * s.features, s.out_features(), false);
  }
  return fmt::format("{}convolution {}x{}{}", depthwise ? "depth-wise " : "",
                     s.stage.kernel_size[0], s.stage.kernel_size[1],
                     s.stride == 2 ? " stride 2" : "");
}

std::string add_conv_pool(Cost& c, const Site& s) {
  const double pixels = static_cast<double>(s.in.count());
  add_product(c, pixels, 9 * s.features, 2 * s.features, true);
  add_norm(c, 2 * pixels * s.features, 2 * s.features);
  c.flops += 9.0 * s.out().count() * 2 * s.features;
  return "3x3 convolution, LayerNorm, 3x3 max-pooling";
}

std::string add_local_mixer(Cost& c, const Site& site) {
  switch (site.config.local_mixer) {
    case LocalMixer::kQnA:
      return add_qna(c, site);
    case LocalMixer::kSasa:
      return add_sasa(c, site);
    case LocalMixer::kWindow:
      return add_windows(c, site, {});
    case LocalMixer::kHalo:
      return add_halo(c, site);
    case LocalMixer::kConv:
      return add_convolution(c, site, false);
    case LocalMixer::kDepthwise:
      return add_convolution(c, site, true);
  }
  return "";
}

std::string add_downsampling_mixer(Cost& c, const Site& site) {
  switch (site.config.downsample) {
    case Downsample::kSasa:
      return add_sasa(c, site);
    case Downsample::kHalo:
      return add_halo(c, site);
    case Downsample::kConv:
      return add_convolution(c, site, false);
    case Downsample::kDepthwise:
      return add_convolution(c, site, true);
    case Downsample::kConvPoolBlock:
      return add_conv_pool(c, site);
    default:
      return add_qna(c, site);
  }
}

std::string add_downsampling(Cost& c, const Site& site) {
  const double windows = static_cast<double>(site.out().count());
  const int64_t features = site.features;
  if (site.config.downsample == Downsample::kConvPool) return add_conv_pool(c, site);
  if (site.config.downsample == Downsample::kPatchMerging) {
    add_norm(c, windows * 4 * features, 4 * features);
    add_product(c, windows, 4 * features, 2 * features, false);
    return "2x2 patch merging";
  }
  add_norm(c, static_cast<double>(site.in.count() * features), features);
  const std::string description = add_downsampling_mixer(c, site);
  if (site.config.downsample_skip == DownsampleSkip::kAveragePool) {
    const bool conv_pool = site.config.downsample == Downsample::kConvPoolBlock;
    c.flops += windows * (conv_pool ? 9 : site.taps()) * features;
  }
  add_product(c, windows, features, 2 * features, false);  // the skip connection
  add_mlp(c, site.config, windows, 2 * features);
  return description;
}

void add_inverted_residual(Cost& c, const InvertedResidualOptions& o, const Map& in,
                           const Map& out) {
  const auto pixels = static_cast<double>(in.count());
  const auto windows = static_cast<double>(out.count());
  if (o.expands()) {
    add_product(c, pixels, o.in_features, o.hidden, true);
    c.flops += pixels * o.hidden;  // ReLU6
  }
  add_product(c, windows, o.kernel * o.kernel, o.hidden, true);
  c.flops += windows * o.hidden;
  add_product(c, windows, o.hidden, o.features, true);
  if (o.has_skip()) c.flops += windows * o.features;
}

std::string add_efficientnet_stem(Cost& c, const QnAViTConfig& config, int64_t height,
                                  int64_t width) {
  Map map = Map{height, width}.half();
  const auto first = static_cast<double>(map.count());
  add_product(c, first, 9 * config.in_channels, kEfficientNetFirst, true);
  c.flops += first * kEfficientNetFirst;
  for (const InvertedResidualOptions& block : efficientnet_blocks()) {
    const Map in = map;
    if (block.stride == 2) map = map.half();
    add_inverted_residual(c, block, in, map);
  }
  add_product(c, static_cast<double>(map.count()), kEfficientNetLast, config.base_dim, true);
  return "five stages of EfficientNet-Lite0, a product";
}

std::string add_convolution_stem(Cost& c, const QnAViTConfig& config, int64_t height,
                                 int64_t width) {
  const Map map = Map{height, width}.half();
  const auto pixels = static_cast<double>(map.count());
  const int64_t base = config.base_dim;
  add_product(c, pixels, 49 * config.in_channels, base, false);
  c.parameters += 2 * base;
  c.flops += pixels * base * (2 + kActivationFlops);
  if (config.stem == StemKind::kConv) return "7x7 convolution, BatchNorm";
  c.flops += 9.0 * map.half().count() * base;
  return "7x7 convolution, BatchNorm, 3x3 max-pooling";
}

std::string add_stem(Cost& c, const QnAViTConfig& config, int64_t height, int64_t width) {
  switch (config.stem) {
    case StemKind::kPatch: {
      const int64_t p = config.patch_size;
      const auto patches = static_cast<double>(up(height, p) * up(width, p));
      add_product(c, patches, p * p * config.in_channels, config.base_dim, false);
      return fmt::format("{}x{} patches", p, p);
    }
    case StemKind::kEfficientNet:
      return add_efficientnet_stem(c, config, height, width);
    default:
      return add_convolution_stem(c, config, height, width);
  }
}

}  // namespace

std::vector<LayerCost> layer_costs(const QnAViTConfig& config, int64_t height, int64_t width) {
  std::vector<LayerCost> rows;
  const auto push = [&](const std::string& name, const std::string& description, const Map& map,
                        int64_t features, const Cost& cost, int64_t stage) {
    rows.push_back(
        {name, description, {map.height, map.width}, features, cost.parameters, cost.flops, stage});
  };

  Map map{up(height, config.stem_stride()), up(width, config.stem_stride())};
  Cost stem;
  const std::string stem_text = add_stem(stem, config, height, width);
  push("stem", stem_text, map, config.base_dim, stem, -1);

  for (size_t i = 0; i < config.stages.size(); ++i) {
    const StageConfig& s = config.stages[i];
    const int64_t features = config.features(i);
    const std::string stage = fmt::format("stages.{}", i);
    const Map trained{up(config.image_size[0], config.stride(i)),
                      up(config.image_size[1], config.stride(i))};
    for (int64_t n = 0; n < s.attention_blocks + s.qna_blocks; ++n) {
      const int64_t local = n - s.attention_blocks;  // below 0: not local
      const Site site{.config = config,
                      .stage = s,
                      .in = map,
                      .features = features,
                      .stride = 1,
                      .shifted = local > 0 && local % 2 == 1};
      Cost cost;
      add_norm(cost, static_cast<double>(map.count() * features), features);
      const std::string description =
          local < 0 ? add_windows(cost, site, trained) : add_local_mixer(cost, site);
      add_mlp(cost, config, static_cast<double>(map.count()), features);
      push(fmt::format("{}.blocks.{}", stage, n), description, map, features, cost,
           static_cast<int64_t>(i));
    }
    if (i + 1 == config.stages.size()) continue;
    Cost cost;
    const Site site{.config = config, .stage = s, .in = map, .features = features, .stride = 2};
    const std::string description = add_downsampling(cost, site);
    map = map.half();
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
      const QnAOptions defaults;
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

}  // namespace qna::config
