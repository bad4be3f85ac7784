#include "qna/config/auto_encoder_cost.h"

#include <fmt/format.h>

#include "qna/config/cost_parts.h"

namespace qna::config {
namespace {

using namespace cost_parts;

// Convolution, InstanceNorm and ReLU; `products`: positions at which the window is multiplied.
void add_normed_convolution(Cost& c, double products, double out, int64_t in_features,
                            int64_t features, int64_t kernel) {
  add_product(c, products, kernel * kernel * in_features, features, false);
  add_norm(c, out * static_cast<double>(features), features);
  c.flops += out * static_cast<double>(features);
}

// LayerNorm and a QnA layer.
void add_resampling(Cost& c, const QnAOptions& o, const Map& in, const Map& windows) {
  add_norm(c, static_cast<double>(in.count() * o.in_features), o.in_features);
  add_qna(c, o.attention_scale, in, windows, o.in_features, o.features, o.heads, o.queries,
          o.kernel_size[0] * o.kernel_size[1]);
  if (o.upsample > 1) {
    // The last product is taken of every query's sum.
    c.flops += static_cast<double>(windows.count() * (o.queries - 1)) * 2.0 *
               static_cast<double>(o.features * o.out_features);
  }
}

}  // namespace

std::vector<LayerCost> layer_costs(const AutoEncoderConfig& config, int64_t height, int64_t width) {
  std::vector<LayerCost> costs;
  const auto add = [&](const std::string& name, const std::string& what, const Map& map,
                       int64_t features, const Cost& cost) {
    costs.push_back({name,
                     what,
                     {map.height, map.width},
                     features,
                     cost.parameters,
                     cost.flops,
                     /*stage=*/-1});
  };
  const int64_t f = config.factor;
  std::vector<Map> maps = {{height, width}};
  Cost first;
  add_product(first, static_cast<double>(maps[0].count()), config.channels, config.widths[0], true);
  add("stem", "1x1 convolution", maps[0], config.widths[0], first);
  for (size_t i = 0; i + 1 < config.widths.size(); ++i) {
    const int64_t in_features = config.widths[i], features = config.widths[i + 1];
    const Map in = maps[i], out{up(in.height, f), up(in.width, f)};
    maps.push_back(out);
    const auto pixels = static_cast<double>(out.count());
    Cost cost;
    std::string what = "LayerNorm, QnA";
    switch (config.encoder) {
      case EncoderLayer::kQnA:
        add_resampling(cost, encoder_qna(config, i), in, out);
        break;
      case EncoderLayer::kConvStride:
        what = "convolution, InstanceNorm";
        add_normed_convolution(cost, pixels, pixels, in_features, features, config.kernel_size);
        break;
      case EncoderLayer::kConvPool:
        what = "convolution, InstanceNorm, max-pooling";
        add_normed_convolution(cost, static_cast<double>(in.count()),
                               static_cast<double>(in.count()), in_features, features,
                               config.kernel_size);
        cost.flops += pixels * static_cast<double>(f * f * features);
    }
    add(fmt::format("encoder.{}", i), fmt::format("{}, 1/{} of the side", what, f), out, features,
        cost);
  }
  for (size_t n = config.widths.size() - 1; n-- > 0;) {
    const int64_t in_features = config.widths[n + 1], features = config.widths[n];
    const Map in = maps[n + 1], out = maps[n];
    const auto pixels = static_cast<double>(out.count());
    Cost cost;
    std::string what = "LayerNorm, QnA with a query per new pixel";
    switch (config.decoder) {
      case DecoderLayer::kQnA:
        add_resampling(cost, decoder_qna(config, n), in, in);
        break;
      case DecoderLayer::kBilinear:
        what = "bilinear, convolution, InstanceNorm";
        cost.flops += 8.0 * pixels * static_cast<double>(in_features);
        add_normed_convolution(cost, pixels, pixels, in_features, features, config.kernel_size);
        break;
      case DecoderLayer::kTransposed:
        what = "transposed convolution, InstanceNorm";
        add_normed_convolution(cost, static_cast<double>(in.count()), pixels, in_features, features,
                               TransposedWindow(f).size);
    }
    add(fmt::format("decoder.{}", config.widths.size() - 2 - n),
        fmt::format("{}, {} times the side", what, f), out, features, cost);
  }
  Cost last;
  add_product(last, static_cast<double>(maps[0].count()), config.widths[0], config.channels, true);
  add("head", "1x1 convolution", maps[0], config.channels, last);
  return costs;
}

int64_t parameter_count(const AutoEncoderConfig& config) {
  return total_cost(layer_costs(config, config.stride(), config.stride())).parameters;
}

}  // namespace qna::config
