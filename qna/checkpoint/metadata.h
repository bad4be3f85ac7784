// What the files of all kinds of models have in common. For the files of this folder only.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "qna/checkpoint/model_file.h"
#include "qna/format/safetensors.h"

namespace qna::checkpoint {

using Metadata = std::map<std::string, std::string>;

enum class FileKind { kClassifier, kDetector, kAutoEncoder };

// Classifiers do not say so. Throws qna::Error for a kind that nobody knows.
FileKind kind_of(const std::string& path, const format::SafetensorsFile& file);

// Throws qna::Error unless the file has this kind and a format that this program reads; the message
// says what reads the file instead.
void check_kind(const std::string& path, const format::SafetensorsFile& file, FileKind kind);

// One entry of the metadata as JSON; null where there is none.
nlohmann::json read_entry(const std::string& path, const format::SafetensorsFile& file,
                          const char* key);

// The entry `config`, which must be there.
nlohmann::json read_config_entry(const std::string& path, const format::SafetensorsFile& file);

// channels, classes: of the model, which preprocessing and labels must fit.
ModelInfo read_info(const std::string& path, const format::SafetensorsFile& file, int64_t channels,
                    int64_t classes);

// The same the other way: `format`, `config` and what is in `info`. Throws qna::Error that begins
// with `who` for what read_info would refuse.
Metadata to_metadata(const ModelInfo& info, const nlohmann::json& config, int64_t channels,
                     int64_t classes, const char* who);

// To be called before anything is built: a small file cannot ask for a large network.
void check_parameters(const std::string& path, const format::SafetensorsFile& file,
                      int64_t parameters);

// A module's tensors in `dtype`, and those of training as they are. `who` begins messages.
void write_model_file(const std::string& path, const torch::nn::Module& model, at::ScalarType dtype,
                      const NamedTensors& training, const Metadata& metadata, const char* who);

}  // namespace qna::checkpoint
