// A network of any kind: what all of them have in common. A kind is a row of the table in
// network.cc.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qna/config/auto_encoder.h"
#include "qna/config/cost.h"
#include "qna/config/detr.h"
#include "qna/config/parameters.h"
#include "qna/config/qna_vit.h"

namespace qna::config {

enum class Kind { kClassifier, kDetector, kAutoEncoder };
// In the order of Kind.
using NetworkConfig = std::variant<QnAViTConfig, DetrConfig, AutoEncoderConfig>;

Kind kind_of(const NetworkConfig& config);
const char* name_of(Kind kind);   // in files: "classifier"
const char* describe(Kind kind);  // for people: "a classifier"
std::optional<Kind> find_kind(std::string_view name);
std::string kind_names();  // "classifier, detector, auto-encoder"

// The kind whose configuration is a Config.
template <typename Config, size_t i = 0>
consteval Kind kind_of_type() {
  if constexpr (std::is_same_v<Config, std::variant_alternative_t<i, NetworkConfig>>) {
    return static_cast<Kind>(i);
  } else {
    return kind_of_type<Config, i + 1>();
  }
}

int64_t channels_of(const NetworkConfig& config);  // of its images
int64_t classes_of(const NetworkConfig& config);   // 0: it has none
// Height and width of an image whose cost is told where none is given.
std::array<int64_t, 2> usual_size(const NetworkConfig& config);
Parameters parameters(const NetworkConfig& config);
std::vector<LayerCost> layer_costs(const NetworkConfig& config, int64_t height, int64_t width);

nlohmann::json to_json(const NetworkConfig& config);
std::string to_toml(const NetworkConfig& config);
// Throw qna::Error, as the readers of each kind do.
NetworkConfig network_from_json(Kind kind, const nlohmann::json& json);
// A TOML or JSON file, by its ending; its keys tell the kind.
NetworkConfig read_network(const std::string& path);

}  // namespace qna::config
