// A module's tensors on their way into a weights file. For the files of this folder only.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "qna/checkpoint/model_file.h"
#include "qna/engine/model.h"

namespace qna::checkpoint {

// Views of a module's parameters and buffers and of the tensors of training, and what they look at.
class ModuleTensors {
 public:
  explicit ModuleTensors(const torch::nn::Module& model, const NamedTensors& training = {});
  const std::vector<format::TensorView>& views() const { return views_; }

 private:
  void add(const std::string& name, const torch::Tensor& tensor);
  std::vector<torch::Tensor> kept_;  // the views' bytes
  std::vector<format::TensorView> views_;
};

// Throws qna::Error that begins with `who` unless weights can be written in this type.
format::DType file_type(at::ScalarType dtype, const char* who);

// To be called before anything is built: a small file cannot ask for a large network.
void check_parameters(const engine::ModelFile& file);

// The bytes that a file would have, opened for serving.
template <typename Module>
engine::Model serve(const Module& model, const ModelInfo& info, const char* who) {
  const ModuleTensors tensors(*model);
  auto bytes = std::make_shared<const std::string>(
      engine::model_file_bytes(model->config(), info, tensors.views(), format::DType::kF32, who));
  return engine::Model(engine::ModelFile::parse(std::move(bytes), who));
}

}  // namespace qna::checkpoint
