#include "qna/config/network.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"
#include "qna/config/auto_encoder_cost.h"
#include "qna/config/detr_cost.h"
#include "qna/format/toml.h"

namespace qna::config {
namespace {

using nlohmann::json;

struct KindRow {
  const char* name;         // in files
  const char* description;  // for people
  NetworkConfig (*from_json)(const json&);
  const char* key;  // that only its configurations have, and always; null: all that is left
};

// In the order of Kind.
constexpr KindRow kKinds[] = {
    {"classifier", "a classifier",
     [](const json& object) { return NetworkConfig(config_from_json(object)); }, nullptr},
    {"detector", "a detector",
     [](const json& object) { return NetworkConfig(detr_config_from_json(object)); }, "backbone"},
    {"auto-encoder", "an auto-encoder",
     [](const json& object) { return NetworkConfig(auto_encoder_config_from_json(object)); },
     "widths"}};
static_assert(std::size(kKinds) == std::variant_size_v<NetworkConfig>);

const KindRow& row_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

// The function for this very kind: without one a configuration would become a NetworkConfig, whose
// function asks for that of its kind, and so on for ever.
template <typename Result, typename Config, typename... Sizes>
Result of_kind(std::type_identity_t<Result (*)(const Config&, Sizes...)> function,
               const Config& config, Sizes... sizes) {
  return function(config, sizes...);
}

int64_t channels(const QnAViTConfig& c) { return c.in_channels; }
int64_t channels(const DetrConfig&) { return 3; }
int64_t channels(const AutoEncoderConfig& c) { return c.channels; }

int64_t classes(const QnAViTConfig& c) { return c.classes; }
int64_t classes(const DetrConfig& c) { return c.classes; }
int64_t classes(const AutoEncoderConfig&) { return 0; }

using Size = std::array<int64_t, 2>;
Size size(const QnAViTConfig& c) { return c.image_size; }
Size size(const DetrConfig&) { return {800, 1066}; }  // COCO's images as DETR sees them
Size size(const AutoEncoderConfig&) { return {64, 64}; }

}  // namespace

Kind kind_of(const NetworkConfig& config) { return static_cast<Kind>(config.index()); }
const char* name_of(Kind kind) { return row_of(kind).name; }
const char* describe(Kind kind) { return row_of(kind).description; }

std::optional<Kind> find_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (name == kKinds[i].name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

std::string kind_names() {
  std::vector<const char*> names;
  for (const KindRow& row : kKinds) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

int64_t channels_of(const NetworkConfig& config) {
  return std::visit([](const auto& c) { return channels(c); }, config);
}

int64_t classes_of(const NetworkConfig& config) {
  return std::visit([](const auto& c) { return classes(c); }, config);
}

std::array<int64_t, 2> usual_size(const NetworkConfig& config) {
  return std::visit([](const auto& c) { return size(c); }, config);
}

Parameters parameters(const NetworkConfig& config) {
  return std::visit([](const auto& c) { return of_kind<Parameters>(parameters, c); }, config);
}

std::vector<LayerCost> layer_costs(const NetworkConfig& config, int64_t height, int64_t width) {
  return std::visit(
      [&](const auto& c) { return of_kind<std::vector<LayerCost>>(layer_costs, c, height, width); },
      config);
}

json to_json(const NetworkConfig& config) {
  return std::visit([](const auto& c) { return of_kind<json>(to_json, c); }, config);
}

std::string to_toml(const NetworkConfig& config) { return format::to_toml(to_json(config)); }

NetworkConfig network_from_json(Kind kind, const json& object) {
  return row_of(kind).from_json(object);
}

NetworkConfig read_network(const std::string& path) {
  const json object = format::read_toml_or_json(path);
  const KindRow* chosen = &kKinds[0];
  for (const KindRow& row : kKinds) {
    if (row.key != nullptr && object.contains(row.key)) chosen = &row;
  }
  try {
    return chosen->from_json(object);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace qna::config
