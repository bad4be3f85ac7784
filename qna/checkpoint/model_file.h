// Networks of every kind, as torch modules, from and to weights files; see engine/model_file.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qna/engine/model.h"
#include "qna/models/auto_encoder.h"
#include "qna/models/detr.h"
#include "qna/models/qna_vit.h"

namespace qna::checkpoint {

using engine::ModelInfo;
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Parameters and buffers by name.
NamedTensors named_tensors(const torch::nn::Module& model);

// A models::QnAViT, Detr or AutoEncoder, which must outlive this: any of them can be saved.
struct AnyModel {
  template <typename Model>
  AnyModel(const Model& model) : module(*model), config(model->config()) {}

  const torch::nn::Module& module;
  config::NetworkConfig config;
};

// dtype: of the tensors in the file, kFloat, kHalf or kBFloat16. training: tensors to keep as they
// are under engine::kTrainingPrefix + name.
void save_model(const std::string& path, const AnyModel& model, const ModelInfo& info,
                at::ScalarType dtype = at::kFloat, const NamedTensors& training = {});

// The same in memory, ready to serve: what is measured in training is what users run.
engine::Model serving_model(const AnyModel& model, const ModelInfo& info);

template <typename Model>
struct Loaded {
  Model model{nullptr};  // in evaluation mode
  ModelInfo info;
};

// Model: models::QnAViT, models::Detr or models::AutoEncoder. Throws qna::Error when the file is
// broken, was not written by qna, or holds another kind of network.
template <typename Model>
Loaded<Model> load_model(const engine::ModelFile& file);
template <typename Model>
Loaded<Model> load_model(const std::string& path) {
  return load_model<Model>(engine::ModelFile::open(path));
}

// What did not fit and was changed, one line each.
using LoadReport = std::vector<std::string>;

// The weights of a file into a model that exists, to start from. What cannot be made to fit is a
// qna::Error, and nothing is changed then.
//
// A classifier takes a classifier's: relative tables of another size are resized bicubically, a
// head of another number of classes keeps its initial values.
LoadReport load_weights(models::QnAViT& model, const std::string& path);
// A detector takes a detector's (object queries of another number keep their initial values) or a
// classifier's, which fills the backbone: a QnA-ViT written by qna, or a ResNet with torchvision's
// names. classes: the names of the model's. Those that the file's detector has too stay what they
// are, all others begin as the mean of its classes: as some object, for it knows what is none.
// Without names, a class head of another size keeps its initial values.
LoadReport load_weights(models::Detr& model, const std::string& path,
                        const std::vector<std::string>& classes = {});
// An auto-encoder takes one of the same configuration.
LoadReport load_weights(models::AutoEncoder& model, const std::string& path);

}  // namespace qna::checkpoint
