#include "qna/checkpoint/module_tensors.h"

#include "qna/base/error.h"
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
  kept_.push_back(tensor.detach().cpu().contiguous());
  views_.push_back(view_of(name, kept_.back()));
}

format::DType file_type(at::ScalarType dtype, const char* who) {
  switch (dtype) {
    case at::kFloat:
      return format::DType::kF32;
    case at::kHalf:
      return format::DType::kF16;
    case at::kBFloat16:
      return format::DType::kBF16;
    default:
      fail("{}: dtype must be float32, float16 or bfloat16", who);
  }
}

void check_parameters(const engine::ModelFile& file) {
  double stored = 0;
  for (const format::TensorView& view : file.tensors().tensors()) {
    stored += static_cast<double>(view.bytes.size()) / static_cast<double>(size_of(view.dtype));
  }
  const int64_t wanted = config::learned_count(engine::parameters(file.config()));
  // Twice: a missing tensor is for WeightCopy to name.
  check(static_cast<double>(wanted) <= 2 * stored + 1e6,
        "{}: the configuration asks for {} parameters, the file holds {:.0f}", file.origin(),
        wanted, stored);
}

}  // namespace qna::checkpoint
