// A weights file: a network's configuration, what prediction needs to know beside it, and its
// tensors. The bridge between training and serving: train/ writes it, engine::Model serves it.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qna/config/auto_encoder_cost.h"
#include "qna/config/detr_cost.h"
#include "qna/config/parameters.h"
#include "qna/config/preprocess.h"
#include "qna/config/qna_vit.h"
#include "qna/format/safetensors.h"

namespace qna::engine {

// In the order of the kinds.
enum class Kind { kClassifier, kDetector, kAutoEncoder };
using NetworkConfig =
    std::variant<config::QnAViTConfig, config::DetrConfig, config::AutoEncoderConfig>;

const char* name_of(Kind kind);     // in the file's metadata: "classifier"
const char* describe(Kind kind);    // for people: "a classifier"
const char* readers_of(Kind kind);  // what such a file is for: "qna predict, or ..."
Kind kind_of(const NetworkConfig& config);
int64_t channels_of(const NetworkConfig& config);  // of its images
int64_t classes_of(const NetworkConfig& config);   // 0: it has none
nlohmann::json to_json(const NetworkConfig& config);
config::Parameters parameters(const NetworkConfig& config);
std::vector<config::LayerCost> layer_costs(const NetworkConfig& config, int64_t height,
                                           int64_t width);

// What stands beside the tensors, each as one entry of the file's metadata.
struct ModelInfo {
  std::string name = {};                   // of the model; may be empty
  config::Preprocess preprocess = {};      // from a picture to the model's input
  std::vector<std::string> labels = {};    // of the classes; may be empty
  std::vector<int64_t> category_ids = {};  // of a detector's classes, for COCO's JSON; may be empty
  nlohmann::json training = {};            // how the weights came about; any JSON
};

// Tensors beside the network's have names that begin so; who only wants the network passes them by.
inline constexpr const char* kTrainingPrefix = "training/";

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
  const ModelInfo& info() const { return info_; }
  const format::SafetensorsFile& tensors() const { return *tensors_; }

  // Throws qna::Error unless the file holds just the tensors of its configuration, each of its
  // shape, of a floating type and finite (counts: of any type), beside those of training.
  void check_tensors() const;

  // Throws qna::Error that says what the file holds and what is for that, unless it is of `kind`.
  void check_kind(Kind kind) const;

 private:
  ModelFile(std::unique_ptr<const format::SafetensorsFile> tensors, std::string origin);
  std::string origin_;
  std::unique_ptr<const format::SafetensorsFile> tensors_;
  NetworkConfig config_;
  ModelInfo info_;
};

// Whether a file says of itself that it is a detector, ... Throws where it cannot be read.
Kind kind_of_file(const std::string& path);

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
