#include "cli/random_weights.h"

#include "qna/engine/random_weights.h"

namespace qna::cli {

engine::Model random_model(const engine::NetworkConfig& config) {
  engine::ModelInfo info;
  if (engine::kind_of(config) == engine::Kind::kDetector) info.preprocess.crop = {0, 0};
  info.preprocess.mean.assign(engine::channels_of(config), 0.5f);
  info.preprocess.std.assign(engine::channels_of(config), 0.5f);
  auto bytes = std::make_shared<const std::string>(engine::random_model_bytes(config, info));
  return engine::Model(engine::ModelFile::parse(std::move(bytes), "random weights"));
}

}  // namespace qna::cli
