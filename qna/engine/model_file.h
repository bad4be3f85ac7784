// A weights file: a network's configuration, what prediction needs to know beside it, and its
// tensors. The bridge between training and serving: train/ writes it, engine::Model serves it.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "qna/base/error.h"
#include "qna/config/network.h"
#include "qna/config/preprocess.h"
#include "qna/format/safetensors.h"

namespace qna::engine {

using config::Kind;
using config::NetworkConfig;

// Thrown where a file or model holds another kind of network than is asked for.
class WrongKind : public Error {
 public:
  WrongKind(const std::string& origin, Kind held, Kind wanted);
  const Kind held;
};

// What stands beside the tensors, each as one entry of the file's metadata.
struct ModelInfo {
  std::string name = {};                   // of the model; may be empty
  config::Preprocess preprocess = {};      // from an image to the model's input
  std::vector<std::string> labels = {};    // of the classes; may be empty
  std::vector<int64_t> category_ids = {};  // of a detector's classes, for COCO's JSON; may be empty
  nlohmann::json training = {};            // how the weights came about; any JSON
};

// Tensors beside the network's have names that begin so; who only wants the network passes them by.
inline constexpr const char* kTrainingPrefix = "training/";

// Throws WrongKind, with `origin` as the name of the file, unless the configuration is a Config.
template <typename Config>
const Config& config_as(const NetworkConfig& config, const std::string& origin) {
  if (const auto* held = std::get_if<Config>(&config)) return *held;
  throw WrongKind(origin, kind_of(config), config::kind_of_type<Config>());
}

// A file, opened and checked but for its tensors, which check_tensors() compares.
class ModelFile {
 public:
  // Throw qna::Error when the file is broken or was not written by qna. Of a file that begins with
  // `format`, only the metadata is looked at so far.
  static ModelFile open(const std::string& path);
  // `origin` stands for the path in messages; the bytes are held.
  static ModelFile parse(std::shared_ptr<const std::string> bytes, const std::string& origin);

  const std::string& origin() const { return origin_; }
  Kind kind() const { return kind_of(config_); }
  const NetworkConfig& config() const { return config_; }
  // Config: config::QnAViTConfig, ... Throws WrongKind unless the file's is such a one.
  template <typename Config>
  const Config& config_as() const {
    return engine::config_as<Config>(config_, origin_);
  }
  const ModelInfo& info() const { return info_; }
  const format::SafetensorsFile& tensors() const { return *tensors_; }

  // Throws qna::Error unless the file holds just the tensors of its configuration, each of its
  // shape, of a floating type and finite (counts: of any type), beside those of training.
  void check_tensors() const;

 private:
  ModelFile(std::unique_ptr<const format::SafetensorsFile> tensors, std::string origin);
  std::string origin_;
  std::unique_ptr<const format::SafetensorsFile> tensors_;
  NetworkConfig config_;
  ModelInfo info_;
};

// The floating tensors are written as `dtype`: kF32, kF16 or kBF16; those under kTrainingPrefix and
// integers as they are. Throw qna::Error that begins with `who` for info that does not fit the
// configuration.
void write_model_file(const std::string& path, const NetworkConfig& config, const ModelInfo& info,
                      std::span<const format::TensorView> tensors, format::DType dtype,
                      const char* who);
// The same as bytes.
std::string model_file_bytes(const NetworkConfig& config, const ModelInfo& info,
                             std::span<const format::TensorView> tensors, format::DType dtype,
                             const char* who);

// A tensor's numbers as float32, whatever its floating type.
std::vector<float> read_floats(const format::TensorView& view, const std::string& origin);

}  // namespace qna::engine
