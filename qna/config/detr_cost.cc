#include "qna/config/detr_cost.h"

#include <fmt/format.h>

#include <cmath>

#include "qna/config/cost_parts.h"

namespace qna::config {
namespace {

using namespace cost_parts;

// With its norm, which is a shift behind scaled weights, and ReLU.
void add_convolution(Cost& c, const Map& out, int64_t in_features, int64_t features,
                     int64_t kernel) {
  add_product(c, static_cast<double>(out.count()), kernel * kernel * in_features, features, false);
  c.flops += 2.0 * static_cast<double>(out.count() * features);
}

// From `from` positions to `to` positions.
void add_attention(Cost& c, double from, double to, int64_t features, int64_t heads) {
  add_product(c, from, features, features, true);
  add_product(c, to, features, 2 * features, true);
  c.flops += from * to * (4.0 * features + kSoftmaxFlops * heads);
  add_product(c, from, features, features, true);
  c.flops += from * features;  // the sum with what was there before
}

void add_feed_forward(Cost& c, double rows, const DetrConfig& config) {
  add_product(c, rows, config.hidden, config.feedforward, true);
  c.flops += rows * config.feedforward;
  add_product(c, rows, config.feedforward, config.hidden, true);
  c.flops += rows * config.hidden;
}

Cost qna_block(const DetrConfig& config, const Map& map) {
  Cost cost;
  const auto positions = static_cast<double>(map.count());
  const int64_t hidden = std::llround(config.qna.mlp_ratio * static_cast<double>(config.hidden));
  add_norm(cost, positions * config.hidden, config.hidden);
  add_qna(cost, QnAOptions{}.attention_scale, map, map, config.hidden, config.hidden,
          config.qna.heads, config.qna.queries,
          config.qna.kernel_size[0] * config.qna.kernel_size[1]);
  add_norm(cost, positions * config.hidden, config.hidden);
  add_product(cost, positions, config.hidden, hidden, true);
  cost.flops += kActivationFlops * positions * hidden;
  add_product(cost, positions, hidden, config.hidden, true);
  cost.flops += 2 * positions * config.hidden;
  return cost;
}

Cost encoder_block(const DetrConfig& config, double positions) {
  Cost cost;
  add_attention(cost, positions, positions, config.hidden, config.heads);
  add_feed_forward(cost, positions, config);
  for (int i = 0; i < 2; ++i) add_norm(cost, positions * config.hidden, config.hidden);
  return cost;
}

Cost decoder_block(const DetrConfig& config, double positions) {
  Cost cost;
  const auto queries = static_cast<double>(config.queries);
  add_attention(cost, queries, queries, config.hidden, config.heads);
  add_attention(cost, queries, positions, config.hidden, config.heads);
  add_feed_forward(cost, queries, config);
  for (int i = 0; i < 3; ++i) add_norm(cost, queries * config.hidden, config.hidden);
  return cost;
}

Cost resnet_block(const ResNetConfig& config, const Map& in, const Map& out, int64_t in_features,
                  int64_t features) {
  Cost cost;
  if (config.basic()) {
    add_convolution(cost, out, in_features, features, 3);
    add_convolution(cost, out, features, features, 3);
  } else {
    add_convolution(cost, in, in_features, features / 4, 1);
    add_convolution(cost, out, features / 4, features / 4, 3);
    add_convolution(cost, out, features / 4, features, 1);
  }
  if (in.count() != out.count() || in_features != features) {
    add_convolution(cost, out, in_features, features, 1);
  }
  return cost;
}

}  // namespace

std::vector<LayerCost> layer_costs(const ResNetConfig& config, int64_t height, int64_t width) {
  std::vector<LayerCost> rows;
  const auto push = [&](const std::string& name, const std::string& description, const Map& map,
                        int64_t features, const Cost& cost, int64_t stage) {
    rows.push_back(
        {name, description, {map.height, map.width}, features, cost.parameters, cost.flops, stage});
  };
  Map map = Map{height, width}.half();
  Cost stem;
  add_convolution(stem, map, 3, 64, 7);
  map = map.half();
  stem.flops += 9.0 * static_cast<double>(map.count() * 64);
  push("conv1", "7x7 convolution, frozen BatchNorm, 3x3 max-pooling", map, 64, stem, -1);

  int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t features = (config.basic() ? 64 : 256) << stage;
    for (int64_t i = 0; i < config.blocks()[stage]; ++i) {
      const bool halves = i == 0 && stage > 0 && !(stage == 3 && config.dilation);
      const Map next = halves ? map.half() : map;
      push(fmt::format("layer{}.{}", stage + 1, i), "residual block", next, features,
           resnet_block(config, map, next, in, features), stage);
      map = next;
      in = features;
    }
  }
  if (config.classes > 0) {
    Cost head;
    add_product(head, 1, in, config.classes, true);
    head.flops += static_cast<double>(map.count() * in);
    push("fc", fmt::format("mean, {} classes", config.classes), {1, 1}, config.classes, head, -1);
  }
  return rows;
}

std::vector<LayerCost> layer_costs(const DetrConfig& config, int64_t height, int64_t width) {
  std::vector<LayerCost> rows = std::visit(
      [&](const auto& backbone) { return layer_costs(backbone, height, width); }, config.backbone);
  for (LayerCost& row : rows) row.name = "backbone.0.body." + row.name;
  const Map map{up(height, config.backbone_stride()), up(width, config.backbone_stride())};
  const auto positions = static_cast<double>(map.count());
  const auto queries = static_cast<double>(config.queries);
  const auto push = [&](const std::string& name, const std::string& description,
                        std::array<int64_t, 2> size, int64_t features, const Cost& cost) {
    rows.push_back({name, description, size, features, cost.parameters, cost.flops, -1});
  };
  const std::array<int64_t, 2> on_map = {map.height, map.width}, on_queries = {1, config.queries};
  const int64_t backbone = config.backbone_features();

  if (config.has_qna_backbone()) {
    Cost norm;
    add_norm(norm, positions * backbone, backbone);
    push("backbone.0.norm", "LayerNorm", on_map, backbone, norm);
  }
  Cost places;
  if (config.positions == PositionKind::kLearned) places.parameters = 50 * config.hidden;
  push("backbone.1", "position code", on_map, config.hidden, places);
  Cost project;
  add_product(project, positions, backbone, config.hidden, true);
  push("input_proj", "1x1 convolution", on_map, config.hidden, project);

  const int64_t replaced = config.qna.blocks > 0 ? config.qna.replaces : 0;
  int64_t layer = 0;
  const auto push_layer = [&](const std::string& description, const Cost& cost) {
    push(fmt::format("transformer.encoder.layers.{}", layer++), description, on_map, config.hidden,
         cost);
  };
  for (int64_t i = 0; i <= config.encoder_blocks; ++i) {
    for (int64_t n = 0; i == config.qna.first && n < config.qna.blocks; ++n) {
      push_layer(fmt::format("QnA {}x{}, {} heads, {} queries", config.qna.kernel_size[0],
                             config.qna.kernel_size[1], config.qna.heads, config.qna.queries),
                 qna_block(config, map));
    }
    const bool kept = i < config.qna.first || i >= config.qna.first + replaced;
    if (i < config.encoder_blocks && kept) {
      push_layer(fmt::format("self-attention, {} heads", config.heads),
                 encoder_block(config, positions));
    }
  }
  const bool qna_last =
      config.qna.blocks > 0 && config.qna.first + replaced >= config.encoder_blocks;
  if (config.pre_norm || qna_last) {
    Cost norm;
    add_norm(norm, positions * config.hidden, config.hidden);
    push("transformer.encoder.norm", "LayerNorm", on_map, config.hidden, norm);
  }

  for (int64_t i = 0; i < config.decoder_blocks; ++i) {
    push(fmt::format("transformer.decoder.layers.{}", i),
         fmt::format("{} queries, {} heads", config.queries, config.heads), on_queries,
         config.hidden, decoder_block(config, positions));
  }
  const double refinements = queries * static_cast<double>(config.decoder_blocks);
  const double predictions = config.aux_loss ? refinements : queries;
  Cost norm, classes, boxes;
  add_norm(norm, queries * static_cast<double>(config.decoder_blocks * config.hidden),
           config.hidden);
  push("transformer.decoder.norm", "LayerNorm", on_queries, config.hidden, norm);
  const int64_t query_features = config.anchors ? 4 : config.hidden;
  push(config.anchors ? "refpoint_embed" : "query_embed",
       config.anchors ? "boxes to begin with" : "object queries", on_queries, query_features,
       {.parameters = config.queries * query_features, .flops = 0});
  add_product(classes, predictions, config.hidden, config.classes + 1, true);
  push("class_embed", fmt::format("{} classes and none", config.classes), on_queries,
       config.classes + 1, classes);
  for (const int64_t out : {config.hidden, config.hidden, int64_t{4}}) {
    add_product(boxes, config.anchors ? refinements : predictions, config.hidden, out, true);
  }
  push("bbox_embed", "boxes", on_queries, 4, boxes);
  return rows;
}

}  // namespace qna::config
