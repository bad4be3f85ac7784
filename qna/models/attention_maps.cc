#include "qna/models/attention_maps.h"

#include <algorithm>
#include <set>

#include "qna/base/error.h"

namespace qna::models {
namespace {

using torch::Tensor;

std::string block_name(size_t stage, size_t block) {
  return fmt::format("stages.{}.blocks.{}", stage, block);
}
std::string downsample_name(size_t stage) { return fmt::format("stages.{}.downsample", stage); }
constexpr const char* kHead = "head";

// The others' maps are not drawn: a query per pixel has no picture of its own, shifted windows and
// convolutions have none at all.
bool has_maps(const nn::Block& block) {
  return block->qna ||
         (block->attention && block->attention->options().shift == std::array<int64_t, 2>{0, 0});
}

AttentionLayer describe(const QnAViT& model, std::string name, size_t stage,
                        const nn::Block& block) {
  return {.name = std::move(name),
          .stage = static_cast<int64_t>(stage),
          .learned_queries = static_cast<bool>(block->qna),
          .heads = block->qna ? block->qna->options().heads : block->attention->options().heads,
          .stride = model->config().stride(stage)};
}

// The head's one window is as large as the map, whatever its size; so are its tables.
nn::AttentionMaps head_maps(const ClassificationHead& head, const Tensor& x) {
  ops::LayerParameters parameters = head->qna->parameters_for_layer();
  ops::WindowGeometry geometry = head->qna->geometry();
  geometry.kernel_size = {x.size(1), x.size(2)};
  for (auto* table : {&parameters.bias, &parameters.tap_weights}) {
    if (table->has_value()) *table = resize_window_table(**table, geometry.kernel_size);
  }
  return nn::attention_maps(x, parameters, geometry);
}

LayerAttention look(const AttentionLayer& layer, nn::Block& block, const Tensor& x,
                    int64_t kernel_side) {
  LayerAttention out{.layer = layer, .maps = {}, .kernels = {}};
  const Tensor normed = block->norm1->forward(x);
  if (!block->qna) {
    out.maps.attention = nn::attention_map(block->attention, normed).unsqueeze(1);
    return out;
  }
  out.maps = nn::attention_maps(block->qna, normed);
  if (kernel_side > 0) {
    const nn::QnAOptions& o = block->qna->options();
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t windows = (x.size(1 + axis) - 1) / o.stride[axis] + 1;
      const int64_t weights = windows * o.kernel_size[axis];
      out.every = std::max(out.every, (weights + kernel_side - 1) / kernel_side);
    }
    out.kernels = nn::attention_kernels(block->qna, normed, out.every);
  }
  return out;
}

}  // namespace

std::vector<AttentionLayer> attention_layers(const QnAViT& model) {
  std::vector<AttentionLayer> layers;
  for (size_t i = 0; i < model->stages.size(); ++i) {
    const Stage& stage = model->stages[i];
    for (size_t n = 0; n < stage->blocks.size(); ++n) {
      if (!has_maps(stage->blocks[n])) continue;
      layers.push_back(describe(model, block_name(i, n), i, stage->blocks[n]));
    }
    if (stage->downsample && has_maps(stage->downsample)) {
      layers.push_back(describe(model, downsample_name(i), i, stage->downsample));
    }
  }
  if (model->head && model->head->qna) {
    const size_t last = model->stages.size() - 1;
    layers.push_back({.name = kHead,
                      .stage = static_cast<int64_t>(last),
                      .heads = model->head->qna->options().heads,
                      .stride = model->config().stride(last)});
  }
  return layers;
}

std::vector<AttentionLayer> typical_attention_layers(const QnAViT& model) {
  std::vector<AttentionLayer> layers = attention_layers(model);
  // Backwards, a layer is the last of its kind if none was seen before.
  std::set<int64_t> seen;
  bool seen_self_attention = false;
  std::vector<AttentionLayer> chosen;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (layer->name.find("blocks") == std::string::npos) continue;
    const bool is_last = layer->learned_queries ? seen.insert(layer->stage).second
                                                : !std::exchange(seen_self_attention, true);
    if (is_last) chosen.push_back(*layer);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

AttentionLayer find_attention_layer(const QnAViT& model, std::string_view name) {
  std::string names;
  for (const AttentionLayer& layer : attention_layers(model)) {
    std::string brief = layer.name;
    for (const std::string_view part : {"stages.", "blocks."}) {
      if (const size_t at = brief.find(part); at != std::string::npos) brief.erase(at, part.size());
    }
    if (name == layer.name || name == brief) return layer;
    names += (names.empty() ? "" : ", ") + brief;
  }
  fail("there is no layer '{}' with attention maps; the layers are {}", name,
       names.empty() ? "none: this network has neither QnA nor self-attention" : names);
}

std::vector<LayerAttention> attention_of(QnAViT& model, const Tensor& images,
                                         const AttentionOptions& options) {
  const int64_t channels = model->config().in_channels;
  qna::check(images.defined() && images.dim() == 4 && images.size(3) == channels,
             "attention_of: images must be [batch, height, width, {}], got {}", channels,
             images.defined() ? ops::sizes_text(images.sizes()) : "an undefined tensor");
  std::set<std::string> wanted;
  for (const std::string& name : options.layers) {
    wanted.insert(find_attention_layer(model, name).name);
  }
  const torch::NoGradGuard no_grad;
  std::vector<LayerAttention> found;
  const auto look_if_wanted = [&](std::string name, size_t stage, nn::Block& block,
                                  const Tensor& x) {
    if (!wanted.contains(name)) return;
    found.push_back(look(describe(model, name, stage, block), block, x, options.kernel_side));
  };

  Tensor map = model->stem->forward(images);
  for (size_t i = 0; i < model->stages.size(); ++i) {
    Stage& stage = model->stages[i];
    for (size_t n = 0; n < stage->blocks.size(); ++n) {
      if (found.size() == wanted.size()) return found;
      look_if_wanted(block_name(i, n), i, stage->blocks[n], map);
      map = stage->blocks[n]->forward(map);
    }
    if (stage->is_last()) break;
    if (stage->downsample) look_if_wanted(downsample_name(i), i, stage->downsample, map);
    map = stage->forward_downsample(map, /*mask=*/{}, /*checkpointing=*/false);
  }
  if (wanted.contains(kHead)) {
    found.push_back({.layer = find_attention_layer(model, kHead),
                     .maps = head_maps(model->head, model->head->norm->forward(map)),
                     .kernels = {}});
  }
  return found;
}

}  // namespace qna::models
