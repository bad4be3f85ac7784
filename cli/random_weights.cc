#include "cli/random_weights.h"

#include "qna/engine/random_weights.h"

namespace qna::cli {

engine::Model random_model(const config::NetworkConfig& config,
                           const engine::ModelOptions& options) {
  engine::ModelInfo info;
  if (config::kind_of(config) == config::Kind::kDetector) info.preprocess.crop = {0, 0};
  info.preprocess.mean.assign(config::channels_of(config), 0.5f);
  info.preprocess.std.assign(config::channels_of(config), 0.5f);
  auto bytes = std::make_shared<const std::string>(engine::random_model_bytes(config, info));
  return engine::Model(engine::ModelFile::parse(std::move(bytes), "random weights"), options);
}

}  // namespace qna::cli
