// A module's tensors on their way into a weights file. For the files of this folder only.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "qna/checkpoint/model_file.h"

namespace qna::checkpoint {

// Views of a module's parameters and buffers and of the tensors of training, and what they look at.
class ModuleTensors {
 public:
  explicit ModuleTensors(const torch::nn::Module& model, const NamedTensors& training = {});
  const std::vector<format::TensorView>& views() const { return views_; }

 private:
  void add(const std::string& name, const torch::Tensor& tensor);
  std::vector<torch::Tensor> held_;  // the views' bytes
  std::vector<format::TensorView> views_;
};

}  // namespace qna::checkpoint
