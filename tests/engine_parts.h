// Parts of the engine on their own, with the weights of torch modules.
#pragma once

#include "qna/checkpoint/tensor_bytes.h"
#include "qna/engine/layers.h"
#include "tests/engine_and_torch.h"

namespace qna::testing {

// A file that holds a module's tensors, whatever its configuration says.
inline engine::ModelFile file_of(const torch::nn::Module& module) {
  std::vector<Tensor> kept;
  std::vector<format::TensorView> views;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    kept.push_back(tensor.detach().contiguous());
    views.push_back(checkpoint::view_of(name, kept.back()));
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  const config::QnAViTConfig any{.stages = {{.qna_blocks = 1}}};
  return engine::ModelFile::parse(std::make_shared<const std::string>(engine::model_file_bytes(
                                      any, {}, views, format::DType::kF32, "test")),
                                  "test");
}

// Channels last and contiguous; the tensor must stay.
inline engine::Map map_of(const Tensor& x) {
  return {.batch = x.size(0),
          .height = x.size(1),
          .width = x.size(2),
          .features = x.size(3),
          .data = x.data_ptr<float>()};
}

// Threads and memory for parts.
struct PartContext {
  engine::Context context{2};
  engine::Worker worker{context.state().runtime, context.state().arena};
};

}  // namespace qna::testing
