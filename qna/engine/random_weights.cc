#include "qna/engine/random_weights.h"

#include <random>

namespace qna::engine {

std::string random_model_bytes(const NetworkConfig& config, const ModelInfo& info, uint32_t seed) {
  using ParameterKind = config::Parameter::Kind;
  std::minstd_rand random(seed);
  // Variances and the scales beside them are above 0.
  std::uniform_real_distribution<float> weight(-0.15f, 0.15f), statistic(0.5f, 1.5f);
  const int64_t no_batches = 0;
  const config::Parameters all = parameters(config);
  std::vector<std::vector<float>> numbers;
  numbers.reserve(all.size());  // views point into them
  std::vector<format::TensorView> views;
  for (const config::Parameter& parameter : all) {
    if (parameter.kind == ParameterKind::kCount) {
      views.push_back({parameter.name, format::DType::kI64, parameter.shape,
                       std::as_bytes(std::span(&no_batches, 1))});
      continue;
    }
    size_t count = 1;
    for (const int64_t size : parameter.shape) count *= static_cast<size_t>(size);
    std::vector<float>& values = numbers.emplace_back(count);
    for (float& value : values) {
      value = parameter.kind == ParameterKind::kStatistic ? statistic(random) : weight(random);
    }
    views.push_back(
        {parameter.name, format::DType::kF32, parameter.shape, std::as_bytes(std::span(values))});
  }
  return model_file_bytes(config, info, views, format::DType::kF32, "random weights");
}

}  // namespace qna::engine
