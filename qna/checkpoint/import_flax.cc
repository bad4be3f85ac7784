#include "qna/checkpoint/import_flax.h"

#include <functional>
#include <set>

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/models/cost.h"
#include "qna/models/registry.h"
#include "qna/ops/geometry.h"

namespace qna::checkpoint {
namespace {

using torch::Tensor;
using Convert = std::function<Tensor(const Tensor&)>;  // undefined for another shape

// One tensor of ours: where flax keeps it and how it is laid out there.
struct Row {
  std::string flax;
  std::string name;
  Convert convert;
};

Tensor same(const Tensor& t) { return t; }
Tensor transposed(const Tensor& t) { return t.dim() == 2 ? t.t() : Tensor(); }
// HWIO -> OIHW
Tensor convolution(const Tensor& t) { return t.dim() == 4 ? t.permute({3, 2, 0, 1}) : Tensor(); }

// A table whose first dimensions, all `places` of a window, are one there, with ones before it or
// split at the end, to our shape.
Convert table(std::vector<int64_t> sizes, int64_t places) {
  return [sizes, places](const Tensor& t) {
    int64_t before = 1;
    for (const int64_t size : t.sizes()) {
      if (before == places) break;
      before *= size;
    }
    return before == places && (places == 1 || t.dim() >= 2) ? t.reshape(sizes) : Tensor();
  };
}

// The names of a whole network, in our order.
class Rows {
 public:
  explicit Rows(const models::QnAViT& model) : config_(model->config()) {
    check(config_.local_mixer == models::LocalMixer::kQnA,
          "import: the local blocks of the authors' models are QnA, this configuration's are not");
    const bool patch = config_.stem == models::StemKind::kPatch;
    add("StemBlock_0." + std::string(patch ? "conv_1x1" : "conv_7x7") + ".kernel",
        "stem.conv.weight", convolution);
    if (!patch) {
      add_norm("StemBlock_0.BatchNorm_0", "stem.norm");
      rows.push_back({"batch_stats.StemBlock_0.BatchNorm_0.mean", "stem.norm.running_mean", same});
      rows.push_back({"batch_stats.StemBlock_0.BatchNorm_0.var", "stem.norm.running_var", same});
    }
    for (size_t i = 0; i < model->stages.size(); ++i) add_stage(model->stages[i], i);
    if (model->head) {
      add_norm("ClassificationHead_0.LayerNorm_0", "head.norm");
      if (model->head->qna) add_qna("ClassificationHead_0", "head", model->head->qna);
      add_linear("ClassificationHead_0.head_logits", "head.fc", true);
    }
  }
  std::vector<Row> rows;

 private:
  void add(const std::string& flax, const std::string& name, const Convert& convert) {
    rows.push_back({"params." + flax, name, convert});
  }
  void add_norm(const std::string& flax, const std::string& name) {
    add(flax + ".scale", name + ".weight", same);
    add(flax + ".bias", name + ".bias", same);
  }
  void add_linear(const std::string& flax, const std::string& name, bool bias) {
    add(flax + ".kernel", name + ".weight", transposed);
    if (bias) add(flax + ".bias", name + ".bias", same);
  }
  void add_qna(const std::string& flax_block, const std::string& block, const nn::QnA& qna) {
    const std::string flax = flax_block + ".FusedKQnA_0.";
    const std::string name = block + ".qna.";
    const nn::QnAOptions& o = qna->options();
    add(flax + "query", name + "query", same);
    add(flax + "Wk", name + "key_weight", same);
    add(flax + "to_v.kernel", name + "value_weight", same);
    add(flax + "to_out.kernel", name + "out_weight", same);
    const int64_t places = o.kernel_size[0] * o.kernel_size[1];
    const Convert taps = table({o.kernel_size[0], o.kernel_size[1], o.queries, o.heads}, places);
    add(flax + "rpe_bias", name + "relative_bias", taps);
    switch (o.attention_scale) {
      case nn::AttentionScale::kPerTap:
        add(flax + "attn_scale_weights", name + "attention_scale", taps);
        break;
      case nn::AttentionScale::kPerQuery:
        add(flax + "attn_scale_weights", name + "attention_scale", table({o.queries, o.heads}, 1));
        break;
      case nn::AttentionScale::kOnes:
        add(flax + "attn_scale_pos", name + "attention_scale", taps);
        break;
      default:
        break;
    }
  }
  void add_attention(const std::string& flax_block, const std::string& block,
                     const nn::WindowSelfAttention& attention) {
    const std::string flax = flax_block + ".MultiHeadSelfAttention_0.";
    const std::string name = block + ".attention.";
    const int64_t features = attention->options().features;
    const int64_t heads = attention->options().heads;
    // Columns [heads, (q k v), dim] there, rows [(q k v), heads, dim] here.
    add(flax + "to_qkv.kernel", name + "qkv.weight", [=](const Tensor& t) {
      if (t.sizes() != at::IntArrayRef({features, 3 * features})) return Tensor();
      return t.reshape({features, heads, 3, features / heads})
          .permute({2, 1, 3, 0})
          .reshape({3 * features, features});
    });
    add(flax + "to_out.kernel", name + "proj.weight", transposed);
    const auto& window = attention->options().window;
    add(flax + "RelativePositionalEmbedding_0.rpe_bias", name + "relative_bias",
        table({2 * window[0] - 1, 2 * window[1] - 1, heads},
              (2 * window[0] - 1) * (2 * window[1] - 1)));
  }
  void add_block(const std::string& flax, const std::string& name, const nn::Block& block) {
    add_norm(flax + ".LayerNorm_0", name + ".norm1");
    if (block->qna) {
      add_qna(flax, name, block->qna);
    } else {
      add_attention(flax, name, block->attention);
    }
    if (block->skip) {
      const char* pool = block->options().average_pool_skip ? ".AvgPool1x1Conv_0" : "";
      add(flax + pool + ".Conv_0.kernel", name + ".skip.weight", convolution);
    }
    add_norm(flax + ".LayerNorm_1", name + ".norm2");
    add_linear(flax + ".MlpBlock_0.Dense_0", name + ".mlp.fc1", true);
    add_linear(flax + ".MlpBlock_0.Dense_1", name + ".mlp.fc2", true);
    if (block->scale1.defined()) {
      add(flax + ".LayerScale_0.scale_param", name + ".scale1", same);
      add(flax + ".LayerScale_1.scale_param", name + ".scale2", same);
    }
  }
  void add_stage(const models::Stage& stage, size_t index) {
    int64_t attention = 0;
    int64_t qna = 0;
    const std::string name = fmt::format("stages.{}", index);
    for (size_t n = 0; n < stage->blocks.size(); ++n) {
      const nn::Block& block = stage->blocks[n];
      const std::string flax = block->qna
                                   ? fmt::format("QnAStage_{}.QnA_Block_{}", index, ++qna)
                                   : fmt::format("LSAStage_{}.MSA_Block_{}", index, ++attention);
      add_block(flax, fmt::format("{}.blocks.{}", name, n), block);
    }
    if (stage->is_last()) return;
    check(config_.downsample == models::Downsample::kQnA,
          "import: the authors' models down-sample by QnA, this configuration does not");
    add_block(fmt::format("QnAStage_{}.QnA_Block_{}_stride_2", index, qna + 1),
              name + ".downsample", stage->downsample);
  }

  const models::QnAViTConfig& config_;
};

bool is_weight(const std::string& path) {
  return path.starts_with("params.") || path.starts_with("batch_stats.");
}

std::string joined(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += "\n  " + names[i];
  if (names.size() > kShown) text += fmt::format("\n  and {} more", names.size() - kShown);
  return text;
}

// The elements may be the right ones in the wrong number.
int64_t count(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

}  // namespace

std::vector<std::pair<ImportedTensor, Tensor>> map_flax(const format::FlaxState& state,
                                                        const models::QnAViT& model,
                                                        const std::string& origin) {
  std::map<std::string, Tensor> targets;
  for (const auto& [name, tensor] : named_tensors(*model)) targets[name] = tensor;
  std::vector<std::string> problems;
  std::set<std::string> used;
  std::vector<std::pair<ImportedTensor, Tensor>> mapped;
  for (const Row& row : Rows(model).rows) {
    const auto found = state.find(row.flax);
    if (found == state.end()) {
      problems.push_back(fmt::format("missing: {} (for {})", row.flax, row.name));
      continue;
    }
    used.insert(row.flax);
    const Tensor& target = targets.at(row.name);
    Tensor value;
    if (count(found->second.shape) == target.numel()) {
      value = row.convert(tensor_from(found->second, origin + ": " + row.flax));
    }
    if (!value.defined() || value.sizes() != target.sizes()) {
      problems.push_back(fmt::format("shape: {} is {}, {} needs {}", row.flax,
                                     ops::sizes_text(found->second.shape), row.name,
                                     ops::sizes_text(target.sizes())));
      continue;
    }
    mapped.push_back({{row.flax, row.name, target.sizes().vec()}, value});
  }
  for (const auto& [path, array] : state) {
    if (is_weight(path) && !used.contains(path)) {
      problems.push_back(fmt::format("left over: {} {}", path, ops::sizes_text(array.shape)));
    }
  }
  check(problems.empty(), "{}: the checkpoint does not fit the model:{}", origin, joined(problems));
  return mapped;
}

FlaxImport import_flax(const format::FlaxState& state, const models::QnAViTConfig& config,
                       const std::string& origin) {
  FlaxImport result;
  result.model = models::QnAViT(config);
  std::map<std::string, Tensor> targets;
  for (const auto& [name, tensor] : named_tensors(*result.model)) targets[name] = tensor;
  torch::NoGradGuard no_grad;
  for (const auto& [tensor, value] : map_flax(state, result.model, origin)) {
    targets.at(tensor.name).copy_(value);
    result.tensors.push_back(tensor);
  }
  for (const auto& [path, array] : state) {
    if (!is_weight(path)) result.ignored.push_back(path);
  }
  result.model->eval();
  return result;
}

std::string recognize_flax(const format::FlaxState& state, const std::string& origin) {
  int64_t parameters = 0;
  for (const auto& [path, array] : state) {
    if (path.starts_with("params.")) parameters += count(array.shape);
  }
  for (const models::ModelEntry& entry : models::models()) {
    try {
      models::QnAViTConfig config = entry.config;
      const auto logits = state.find("params.ClassificationHead_0.head_logits.bias");
      if (logits != state.end()) config.classes = count(logits->second.shape);
      // Most are told apart without building them.
      const auto cost = models::total_cost(models::layer_costs(config, 1, 1));
      if (cost.parameters != parameters) continue;
      map_flax(state, models::QnAViT(config), origin);
      return entry.name;
    } catch (const Error&) {
      continue;  // not this one
    }
  }
  fail("{}: this is none of the listed models; give its configuration with --config", origin);
}

}  // namespace qna::checkpoint
