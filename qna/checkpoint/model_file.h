// Classifiers from and to weights files, see engine/model_file.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qna/engine/model.h"
#include "qna/models/qna_vit.h"

namespace qna::checkpoint {

using engine::ModelInfo;

struct LoadOptions {
  std::optional<int64_t> classes = std::nullopt;  // another head, newly initialised
  // Another size to run at: windows stay, what is as large as the map is resized.
  std::optional<std::array<int64_t, 2>> image_size = std::nullopt;
  // The whole configuration, in the place of the file's.
  std::optional<config::QnAViTConfig> config = std::nullopt;
};

// What did not fit and was changed, one line each.
using LoadReport = std::vector<std::string>;

struct LoadedModel {
  models::QnAViT model{nullptr};  // in evaluation mode
  ModelInfo info;
  LoadReport report;
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// dtype: of the tensors in the file, kFloat, kHalf or kBFloat16. training: tensors to keep as they
// are under engine::kTrainingPrefix + name.
void save_model(const std::string& path, const models::QnAViT& model, const ModelInfo& info,
                at::ScalarType dtype = at::kFloat, const NamedTensors& training = {});

// The same in memory, ready to serve: what is measured in training is what users run.
engine::Model serving_model(const models::QnAViT& model, const ModelInfo& info);

// Throws qna::Error when the file is broken, was not written by qna, or does not fit.
LoadedModel load_model(const std::string& path, const LoadOptions& options = {});
LoadedModel load_model(const engine::ModelFile& file, const LoadOptions& options = {});

// The weights of one file into a model that exists. Relative tables of another size are resized
// bicubically, a head of another number of classes keeps its initial values, and the report says
// so; any other difference in names or shapes is a qna::Error.
LoadReport load_weights(models::QnAViT& model, const std::string& path);

// Parameters and buffers by name.
NamedTensors named_tensors(const torch::nn::Module& model);

}  // namespace qna::checkpoint
