#include "qna/checkpoint/module_tensors.h"

#include "qna/checkpoint/tensor_bytes.h"

namespace qna::checkpoint {

ModuleTensors::ModuleTensors(const torch::nn::Module& model, const NamedTensors& training) {
  for (const auto& [name, tensor] : named_tensors(model)) {
    // A module of another type, float64 say, is written as one of float32.
    add(name, tensor.is_floating_point() ? tensor.detach().to(at::kFloat) : tensor);
  }
  for (const auto& [name, tensor] : training) add(engine::kTrainingPrefix + name, tensor);
}

void ModuleTensors::add(const std::string& name, const torch::Tensor& tensor) {
  held_.push_back(tensor.detach().cpu().contiguous());
  views_.push_back(view_of(name, held_.back()));
}

}  // namespace qna::checkpoint
