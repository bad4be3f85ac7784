#include "qna/models/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "qna/base/error.h"

namespace qna::models {
namespace {

using nlohmann::json;

template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};

constexpr EnumName<StemKind> kStems[] = {{StemKind::kPatch, "patch"},
                                         {StemKind::kResNet, "resnet"}};
constexpr EnumName<Downsample> kDownsamples[] = {{Downsample::kQnA, "qna"},
                                                 {Downsample::kPatchMerging, "patch_merging"},
                                                 {Downsample::kConvPool, "conv_pool"}};
constexpr EnumName<DownsampleSkip> kSkips[] = {{DownsampleSkip::kConv, "conv"},
                                               {DownsampleSkip::kAveragePool, "average_pool"}};
constexpr EnumName<HeadKind> kHeads[] = {
    {HeadKind::kGap, "gap"}, {HeadKind::kQnAv1, "qnav1"}, {HeadKind::kQnAv2, "qnav2"}};
constexpr EnumName<LocalMixer> kMixers[] = {{LocalMixer::kQnA, "qna"}};
constexpr EnumName<kernels::Activation> kActivations[] = {
    {kernels::Activation::kGeluTanh, "gelu_tanh"},
    {kernels::Activation::kGelu, "gelu"},
    {kernels::Activation::kRelu, "relu"},
    {kernels::Activation::kSilu, "silu"}};
constexpr EnumName<nn::AttentionScale> kScales[] = {
    {nn::AttentionScale::kPerTap, "per_tap"}, {nn::AttentionScale::kPerQuery, "per_query"},
    {nn::AttentionScale::kOnes, "ones"},      {nn::AttentionScale::kAverage, "average"},
    {nn::AttentionScale::kSigned, "signed"},  {nn::AttentionScale::kNone, "none"}};

// Every field of a struct is named once, here; `visit(key, field, ...)` reads or writes it.
template <typename Config, typename Visit>
void visit_stage(Config& stage, const Visit& visit) {
  visit("attention_blocks", stage.attention_blocks);
  visit("qna_blocks", stage.qna_blocks);
  visit("attention_heads", stage.attention_heads);
  visit("qna_heads", stage.qna_heads);
  visit("kernel_size", stage.kernel_size);
  visit("queries", stage.queries);
  visit("window", stage.window);
}

template <typename Config, typename Visit, typename VisitEnum>
void visit_config(Config& c, const Visit& visit, const VisitEnum& visit_enum) {
  visit("image_size", c.image_size);
  visit("in_channels", c.in_channels);
  visit("classes", c.classes);
  visit("base_dim", c.base_dim);
  visit_enum("stem", c.stem, kStems);
  visit("patch_size", c.patch_size);
  visit_enum("local_mixer", c.local_mixer, kMixers);
  visit_enum("downsample", c.downsample, kDownsamples);
  visit_enum("downsample_skip", c.downsample_skip, kSkips);
  visit("mlp_ratio", c.mlp_ratio);
  visit_enum("activation", c.activation, kActivations);
  visit_enum("attention_scale", c.attention_scale, kScales);
  visit("normalize_queries", c.normalize_queries);
  visit("normalize_stop_gradient", c.normalize_stop_gradient);
  visit("layer_scale", c.layer_scale);
  visit("drop_path", c.drop_path);
  visit("drop_path_downsample", c.drop_path_downsample);
  visit_enum("head", c.head, kHeads);
}

struct Writer {
  json& out;
  void operator()(const char* key, const std::array<int64_t, 2>& pair) const {
    out[key] = pair[0] == pair[1] ? json(pair[0]) : json(pair);
  }
  void operator()(const char* key, const auto& value) const { out[key] = value; }
};

// Reads fields out of an object and in the end refuses what was not asked for.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      fail("model configuration: {} must be a table, got {}", where_.empty() ? "the whole" : where_,
           object.dump());
    }
  }

  void operator()(const char* key, int64_t& field) const {
    if (const json* value = find(key)) field = integer(key, *value);
  }
  void operator()(const char* key, double& field) const {
    const json* value = find(key);
    if (value == nullptr) return;
    qna::check(value->is_number(), "model configuration: {} must be a number, got {}", name(key),
               value->dump());
    field = value->get<double>();
  }
  void operator()(const char* key, bool& field) const {
    const json* value = find(key);
    if (value == nullptr) return;
    qna::check(value->is_boolean(), "model configuration: {} must be true or false, got {}",
               name(key), value->dump());
    field = value->get<bool>();
  }
  void operator()(const char* key, std::array<int64_t, 2>& field) const {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) {
      field.fill(integer(key, *value));
      return;
    }
    qna::check(value->size() == 2,
               "model configuration: {} must be one number, or height and width, got {}", name(key),
               value->dump());
    for (int i = 0; i < 2; ++i) field[i] = integer(key, (*value)[i]);
  }
  template <typename Enum, size_t n>
  void choose(const char* key, Enum& field, const EnumName<Enum> (&names)[n]) const {
    const json* value = find(key);
    if (value == nullptr) return;
    std::string all;
    for (const auto& [candidate, text] : names) {
      if (*value == text) {
        field = candidate;
        return;
      }
      all += all.empty() ? text : std::string(", ") + text;
    }
    fail("model configuration: {} must be one of {}, got {}", name(key), all, value->dump());
  }

  const json* find(const char* key) const {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  std::string name(const std::string& key) const {
    return where_.empty() ? key : where_ + "." + key;
  }
  void refuse_unknown() const {
    for (const auto& [key, value] : object_.items()) {
      qna::check(known_.contains(key), "model configuration: unknown key '{}'", name(key));
    }
  }

 private:
  int64_t integer(const char* key, const json& value) const {
    // Numbers above int64_t are unsigned in nlohmann's library, and would wrap.
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    qna::check(fits, "model configuration: {} must be an integer, got {}", name(key), value.dump());
    return value.get<int64_t>();
  }
  const json& object_;
  const std::string where_;
  mutable std::set<std::string> known_;
};

json from_toml(const toml::node& node) {
  json out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>) {
      out = json::object();
      for (const auto& [key, child] : value) out[std::string(key.str())] = from_toml(child);
    } else if constexpr (toml::is_array<decltype(value)>) {
      out = json::array();
      for (const toml::node& child : value) out.push_back(from_toml(child));
    } else if constexpr (toml::is_string<decltype(value)> || toml::is_integer<decltype(value)> ||
                         toml::is_floating_point<decltype(value)> ||
                         toml::is_boolean<decltype(value)>) {
      out = value.get();
    } else {
      fail("model configuration: dates and times have no place here");
    }
  });
  return out;
}

}  // namespace

void check(const QnAViTConfig& c) {
  const auto in_range = [&](const std::string& name, int64_t value, int64_t least,
                            int64_t most = 1 << 16) {
    qna::check(value >= least && value <= most,
               "model configuration: {} must be from {} to {}, got {}", name, least, most, value);
  };
  const auto number = [](const char* name, double value, double least, double most) {
    qna::check(std::isfinite(value) && value >= least && value <= most,
               "model configuration: {} must be from {} to {}, got {}", name, least, most, value);
  };
  // Ranges larger than any sensible network; all of it together is bounded below.
  in_range("image_size (height)", c.image_size[0], 1);
  in_range("image_size (width)", c.image_size[1], 1);
  in_range("in_channels", c.in_channels, 1, 4096);
  in_range("classes", c.classes, 0, 1 << 24);
  in_range("base_dim", c.base_dim, 1);
  in_range("patch_size", c.patch_size, 1, 1024);
  qna::check(!c.stages.empty() && c.stages.size() <= 8,
             "model configuration: stages must be from 1 to 8, got {}", c.stages.size());
  number("mlp_ratio", c.mlp_ratio, 0.01, 64);
  number("layer_scale", c.layer_scale, 0, 1e6);
  number("drop_path", c.drop_path, 0, 0.999);
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const StageConfig& s = c.stages[i];
    const std::string stage = fmt::format("stages[{}].", i);
    const int64_t features = c.features(i);
    in_range(stage + "attention_blocks", s.attention_blocks, 0, 1000);
    in_range(stage + "qna_blocks", s.qna_blocks, 0, 1000);
    in_range(stage + "attention_heads", s.attention_heads, 1);
    in_range(stage + "qna_heads", s.qna_heads, 1);
    in_range(stage + "queries", s.queries, 1, 1024);
    for (int axis = 0; axis < 2; ++axis) {
      in_range(stage + "kernel_size", s.kernel_size[axis], 1, 1023);
      in_range(stage + "window", s.window[axis], 0, 4096);
    }
    qna::check((s.window[0] == 0) == (s.window[1] == 0),
               "model configuration: {}window must be 0 in both directions or in none, got {} x {}",
               stage, s.window[0], s.window[1]);
    qna::check(s.attention_blocks == 0 || features % s.attention_heads == 0,
               "model configuration: {}attention_heads must divide the stage's {} features, got {}",
               stage, features, s.attention_heads);
    qna::check(features % s.qna_heads == 0,
               "model configuration: {}qna_heads must divide the stage's {} features, got {}",
               stage, features, s.qna_heads);
    qna::check(c.attention_scale != nn::AttentionScale::kSigned || s.queries * s.qna_heads % 2 == 0,
               "model configuration: {}queries x qna_heads must be even for the attention scale "
               "'signed', got {} x {}",
               stage, s.queries, s.qna_heads);
    qna::check(
        std::llround(c.mlp_ratio * static_cast<double>(features)) >= 1,
        "model configuration: mlp_ratio must leave at least 1 of the {} features of stages[{}]"
        ", got {}",
        features, i, c.mlp_ratio);
  }
  double parameters = 0;  // of the products, which are nearly all
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const double features = static_cast<double>(c.features(i));
    const double blocks =
        static_cast<double>(c.stages[i].attention_blocks + c.stages[i].qna_blocks + 4);
    parameters += blocks * (4 + 2 * c.mlp_ratio) * features * features;
  }
  qna::check(parameters <= 0x1p34,
             "model configuration: the network must have at most 2^34 parameters, got about {:.3g}",
             parameters);
}

json to_json(const QnAViTConfig& config) {
  json out;
  const auto write_enum = [&](const char* key, const auto& field, const auto& names) {
    for (const auto& [value, text] : names) {
      if (value == field) out[key] = text;
    }
  };
  visit_config(config, Writer{out}, write_enum);
  out["stages"] = json::array();
  for (const StageConfig& stage : config.stages) {
    json object;
    visit_stage(stage, Writer{object});
    out["stages"].push_back(object);
  }
  return out;
}

QnAViTConfig config_from_json(const json& object) {
  QnAViTConfig config;
  const Reader reader(object, "");
  visit_config(config, reader, [&](const char* key, auto& field, const auto& names) {
    reader.choose(key, field, names);
  });
  const json* stages = reader.find("stages");
  reader.refuse_unknown();
  qna::check(stages != nullptr && stages->is_array(),
             "model configuration: stages must be a list of tables, got {}",
             stages == nullptr ? "nothing" : stages->dump());
  for (size_t i = 0; i < stages->size(); ++i) {
    const Reader stage((*stages)[i], fmt::format("stages[{}]", i));
    visit_stage(config.stages.emplace_back(), stage);
    stage.refuse_unknown();
  }
  check(config);
  return config;
}

QnAViTConfig read_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  qna::check(file.good() && text.good(), "{}: cannot read the file", path);
  try {
    const auto shallow = [](int depth, json::parse_event_t, json&) {
      qna::check(depth <= 64, "the file is nested too deeply");
      return true;
    };
    if (path.ends_with(".json")) return config_from_json(json::parse(text.str(), shallow));
    qna::check(path.ends_with(".toml"), "{}: a model configuration ends in .toml or .json", path);
    return config_from_json(from_toml(toml::parse(text.str())));
  } catch (const toml::parse_error& error) {
    fail("{}, line {}: {}", path, error.source().begin.line, error.description());
  } catch (const json::exception& error) {
    fail("{}: {}", path, error.what());
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

std::string to_toml(const QnAViTConfig& config) {
  const json object = to_json(config);
  std::string out;
  for (const auto& [key, value] : object.items()) {
    if (key != "stages") out += fmt::format("{} = {}\n", key, value.dump());
  }
  for (const json& stage : object["stages"]) {
    out += "\n[[stages]]\n";
    for (const auto& [key, value] : stage.items()) {
      out += fmt::format("{} = {}\n", key, value.dump());
    }
  }
  return out;
}

}  // namespace qna::models
