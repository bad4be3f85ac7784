#include "qna/engine/import_flax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "qna/base/error.h"
#include "qna/config/blocks.h"
#include "qna/config/cost.h"
#include "qna/config/parameters.h"
#include "qna/config/registry.h"
#include "qna/engine/model_file.h"

namespace qna::engine {
namespace {

using Shape = std::vector<int64_t>;

int64_t count(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

std::string text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

struct Array {
  Shape shape;
  std::vector<float> values;
};

// Dimension i of the result is dimension order[i] of `a`.
Array permuted(const Array& a, const std::vector<size_t>& order) {
  Shape strides(a.shape.size(), 1);
  for (size_t i = a.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * a.shape[i];
  Array out;
  for (const size_t from : order) out.shape.push_back(a.shape[from]);
  out.values.reserve(a.values.size());
  Shape place(order.size(), 0);
  for (size_t n = 0; n < a.values.size(); ++n) {
    int64_t from = 0;
    for (size_t i = 0; i < order.size(); ++i) from += place[i] * strides[order[i]];
    out.values.push_back(a.values[from]);
    for (size_t i = order.size(); i-- > 0 && ++place[i] == out.shape[i];) place[i] = 0;
  }
  return out;
}

Array reshaped(Array a, Shape shape) { return {std::move(shape), std::move(a.values)}; }

using Convert = std::function<std::optional<Array>(Array)>;  // nothing for another shape

// One tensor of ours: where flax keeps it and how it is laid out there.
struct Row {
  std::string flax;
  std::string name;
  Convert convert;
};

std::optional<Array> same(Array a) { return a; }

std::optional<Array> transposed(Array a) {
  if (a.shape.size() != 2) return std::nullopt;
  return permuted(a, {1, 0});
}

// HWIO -> OIHW
std::optional<Array> convolution(Array a) {
  if (a.shape.size() != 4) return std::nullopt;
  return permuted(a, {3, 2, 0, 1});
}

// A table whose first dimensions, all `places` of a window, are one there, with ones before it or
// split at the end, to our shape.
Convert table(Shape shape, int64_t places) {
  return [shape, places](Array a) -> std::optional<Array> {
    int64_t before = 1;
    for (const int64_t size : a.shape) {
      if (before == places) break;
      before *= size;
    }
    if (before != places || (places > 1 && a.shape.size() < 2)) return std::nullopt;
    return reshaped(std::move(a), shape);
  };
}

// Columns [heads, (q k v), dim] there, rows [(q k v), heads, dim] here.
Convert query_key_value(int64_t features, int64_t heads) {
  return [=](Array a) -> std::optional<Array> {
    if (a.shape != Shape{features, 3 * features}) return std::nullopt;
    a = reshaped(std::move(a), {features, heads, 3, features / heads});
    return reshaped(permuted(a, {2, 1, 3, 0}), {3 * features, features});
  };
}

// The names of a whole network, in our order.
class Rows {
 public:
  explicit Rows(const config::QnAViTConfig& config) : config_(config) {
    check(config.local_mixer == config::LocalMixer::kQnA,
          "import: the local blocks of the authors' models are QnA, this configuration's are not");
    check(config.stem != config::StemKind::kEfficientNet,
          "import: the authors' models have the stem patch, conv or resnet, this configuration has "
          "'efficientnet'");
    const bool patch = config.stem == config::StemKind::kPatch;
    add("StemBlock_0." + std::string(patch ? "conv_1x1" : "conv_7x7") + ".kernel",
        "stem.conv.weight", convolution);
    if (!patch) {
      add_norm("StemBlock_0.BatchNorm_0", "stem.norm");
      rows.push_back({"batch_stats.StemBlock_0.BatchNorm_0.mean", "stem.norm.running_mean", same});
      rows.push_back({"batch_stats.StemBlock_0.BatchNorm_0.var", "stem.norm.running_var", same});
    }
    for (size_t i = 0; i < config.stages.size(); ++i) add_stage(i);
    if (config.classes > 0) {
      add_norm("ClassificationHead_0.LayerNorm_0", "head.norm");
      if (config.head != config::HeadKind::kGap) {
        add_qna("ClassificationHead_0", "head", config::head_qna(config));
      }
      add_linear("ClassificationHead_0.head_logits", "head.fc");
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
  void add_linear(const std::string& flax, const std::string& name) {
    add(flax + ".kernel", name + ".weight", transposed);
    add(flax + ".bias", name + ".bias", same);
  }
  void add_qna(const std::string& flax_block, const std::string& block,
               const config::QnAOptions& options) {
    const std::string flax = flax_block + ".FusedKQnA_0.";
    const std::string name = block + ".qna.";
    const config::QnAOptions o = config::complete(options);
    add(flax + "query", name + "query", same);
    add(flax + "Wk", name + "key_weight", same);
    add(flax + "to_v.kernel", name + "value_weight", same);
    add(flax + "to_out.kernel", name + "out_weight", same);
    const int64_t places = o.kernel_size[0] * o.kernel_size[1];
    const Convert taps = table({o.kernel_size[0], o.kernel_size[1], o.queries, o.heads}, places);
    add(flax + "rpe_bias", name + "relative_bias", taps);
    switch (o.attention_scale) {
      case config::AttentionScale::kPerTap:
        add(flax + "attn_scale_weights", name + "attention_scale", taps);
        break;
      case config::AttentionScale::kPerQuery:
        add(flax + "attn_scale_weights", name + "attention_scale", table({o.queries, o.heads}, 1));
        break;
      case config::AttentionScale::kOnes:
        add(flax + "attn_scale_pos", name + "attention_scale", taps);
        break;
      default:
        break;
    }
  }
  void add_attention(const std::string& flax_block, const std::string& block,
                     const config::WindowSelfAttentionOptions& o) {
    const std::string flax = flax_block + ".MultiHeadSelfAttention_0.";
    const std::string name = block + ".attention.";
    add(flax + "to_qkv.kernel", name + "qkv.weight", query_key_value(o.features, o.heads));
    add(flax + "to_out.kernel", name + "proj.weight", transposed);
    const int64_t height = 2 * o.window[0] - 1, width = 2 * o.window[1] - 1;
    add(flax + "RelativePositionalEmbedding_0.rpe_bias", name + "relative_bias",
        table({height, width, o.heads}, height * width));
  }
  void add_block(const std::string& flax, const std::string& name,
                 const config::BlockOptions& block) {
    add_norm(flax + ".LayerNorm_0", name + ".norm1");
    if (block.qna) {
      add_qna(flax, name, *block.qna);
    } else {
      add_attention(flax, name, *block.attention);
    }
    if (config::block_shape(block).strided()) {
      const char* pool = block.average_pool_skip ? ".AvgPool1x1Conv_0" : "";
      add(flax + pool + ".Conv_0.kernel", name + ".skip.weight", convolution);
    }
    add_norm(flax + ".LayerNorm_1", name + ".norm2");
    add_linear(flax + ".MlpBlock_0.Dense_0", name + ".mlp.fc1");
    add_linear(flax + ".MlpBlock_0.Dense_1", name + ".mlp.fc2");
    if (block.layer_scale > 0) {
      add(flax + ".LayerScale_0.scale_param", name + ".scale1", same);
      add(flax + ".LayerScale_1.scale_param", name + ".scale2", same);
    }
  }
  void add_stage(size_t index) {
    const config::StageConfig& stage = config_.stages[index];
    const std::string name = fmt::format("stages.{}", index);
    for (int64_t i = 0; i < stage.attention_blocks; ++i) {
      add_block(fmt::format("LSAStage_{}.MSA_Block_{}", index, i + 1),
                fmt::format("{}.blocks.{}", name, i), config::attention_block(config_, index, 0));
    }
    for (int64_t i = 0; i < stage.qna_blocks; ++i) {
      add_block(fmt::format("QnAStage_{}.QnA_Block_{}", index, i + 1),
                fmt::format("{}.blocks.{}", name, stage.attention_blocks + i),
                config::local_block(config_, index, i, 0));
    }
    if (index + 1 == config_.stages.size()) return;
    check(config_.downsample == config::Downsample::kQnA,
          "import: the authors' models down-sample by QnA, this configuration does not");
    add_block(fmt::format("QnAStage_{}.QnA_Block_{}_stride_2", index, stage.qna_blocks + 1),
              name + ".downsample", config::downsampling_block(config_, index, 0));
  }

  const config::QnAViTConfig& config_;
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

Array read(const format::FlaxArray& array, const std::string& what) {
  const std::optional<size_t> bytes = format::byte_count(array.dtype, array.shape);
  check(bytes == array.bytes.size(), "{} has {} bytes, its shape needs {}", what,
        array.bytes.size(), bytes.value_or(0));
  return {array.shape, read_floats({what, array.dtype, array.shape, array.bytes}, what)};
}

}  // namespace

std::vector<FlaxTensor> map_flax(const format::FlaxState& state, const config::QnAViTConfig& config,
                                 const std::string& origin) {
  config::check(config);
  std::map<std::string, Shape> shapes;
  for (const config::Parameter& p : config::parameters(config)) shapes[p.name] = p.shape;
  std::vector<std::string> problems;
  std::set<std::string> used;
  std::vector<FlaxTensor> mapped;
  for (const Row& row : Rows(config).rows) {
    const auto found = state.find(row.flax);
    if (found == state.end()) {
      problems.push_back(fmt::format("missing: {} (for {})", row.flax, row.name));
      continue;
    }
    used.insert(row.flax);
    const Shape& shape = shapes.at(row.name);
    std::optional<Array> value;
    // The elements may be the right ones in the wrong number.
    if (count(found->second.shape) == count(shape)) {
      value = row.convert(read(found->second, origin + ": " + row.flax));
    }
    if (!value || value->shape != shape) {
      problems.push_back(fmt::format("shape: {} is {}, {} needs {}", row.flax,
                                     text(found->second.shape), row.name, text(shape)));
      continue;
    }
    mapped.push_back({row.flax, row.name, shape, std::move(value->values)});
  }
  for (const auto& [path, array] : state) {
    if (is_weight(path) && !used.contains(path)) {
      problems.push_back(fmt::format("left over: {} {}", path, text(array.shape)));
    }
  }
  check(problems.empty(), "{}: the checkpoint does not fit the model:{}", origin, joined(problems));
  return mapped;
}

FlaxImport import_flax(const format::FlaxState& state, const config::QnAViTConfig& config,
                       const std::string& origin) {
  FlaxImport result{.tensors = map_flax(state, config, origin), .ignored = {}};
  for (const auto& [path, array] : state) {
    if (!is_weight(path)) result.ignored.push_back(path);
  }
  for (const config::Parameter& p : config::parameters(config)) {
    if (p.kind == config::Parameter::Kind::kCount) result.counts.push_back(p.name);
  }
  return result;
}

std::vector<format::TensorView> FlaxImport::views() const {
  static constexpr int64_t kNone = 0;
  std::vector<format::TensorView> all;
  for (const FlaxTensor& tensor : tensors) {
    all.push_back({tensor.name, format::DType::kF32, tensor.shape,
                   std::as_bytes(std::span<const float>(tensor.values))});
  }
  for (const std::string& name : counts) {
    all.push_back({name, format::DType::kI64, {}, std::as_bytes(std::span(&kNone, 1))});
  }
  return all;
}

std::string recognize_flax(const format::FlaxState& state, const std::string& origin) {
  int64_t parameters = 0;
  for (const auto& [path, array] : state) {
    if (path.starts_with("params.")) parameters += count(array.shape);
  }
  for (const config::ModelEntry& entry : config::models()) {
    try {
      config::QnAViTConfig config = entry.config;
      const auto logits = state.find("params.ClassificationHead_0.head_logits.bias");
      if (logits != state.end()) config.classes = count(logits->second.shape);
      // Most are told apart by their size.
      const auto cost = config::total_cost(config::layer_costs(config, 1, 1));
      if (cost.parameters != parameters) continue;
      map_flax(state, config, origin);
      return entry.name;
    } catch (const Error&) {
      continue;  // not this one
    }
  }
  fail("{}: this is none of the listed models; give its configuration with --config", origin);
}

}  // namespace qna::engine
