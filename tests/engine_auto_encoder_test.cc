// Auto-encoders by the engine against the torch modules in float64.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qna/checkpoint/model_file.h"
#include "tests/engine_and_torch.h"
#include "tests/support/random_config.h"

namespace qna::testing {
namespace {

using models::AutoEncoder;

struct Codes : engine::Visitor {
  std::vector<Tensor> maps;
  bool wants_stage(int64_t) override { return true; }
  void stage(int64_t, const engine::MapView& map) override { maps.push_back(tensor_of(map)); }
};

void expect_as_torch(AutoEncoder& model, const Tensor& x) {
  const torch::NoGradGuard no_grad;
  const engine::Model served = checkpoint::serving_model(model, info_for(x.size(3)));
  AutoEncoder exact = exact_copy(model);
  const Tensor images = x.to(torch::kDouble);
  Codes seen;
  engine::Context context(2);
  Tensor again = torch::full_like(x, std::nan(""));
  served.reconstruct(images_of(x), again.data_ptr<float>(), context, &seen);
  EXPECT_TRUE(near(again, exact->forward(images), kTolerance));
  ASSERT_EQ(static_cast<int64_t>(seen.maps.size()), model->config().layers());
  EXPECT_TRUE(near(seen.maps.back(), exact->encode(images), kTolerance)) << "code";

  engine::Context alone(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    Tensor one = torch::empty_like(image_alone(x, i));
    served.reconstruct(images_of(image_alone(x, i)), one.data_ptr<float>(), alone);
    EXPECT_TRUE(torch::equal(one, again.slice(0, i, i + 1))) << "image " << i << " alone";
  }
}

TEST(EngineAutoEncoder, EveryKindFactorAndSize) {
  uint64_t seed = 0;
  for (const int64_t factor : {2, 3, 4}) {
    for (const config::AutoEncoderConfig& config : all_auto_encoders(factor)) {
      AutoEncoder model = random_model<AutoEncoder>(config, ++seed);
      for (const auto& [height, width] : {std::pair{32, 48}, {37, 23}, {50, 19}}) {
        SCOPED_TRACE(fmt::format("{}, {} x {}", config::to_json(config).dump(), height, width));
        expect_as_torch(model, torch::randn({2, height, width, 3}));
      }
    }
  }
}

TEST(EngineAutoEncoder, ThePapers) {
  for (const auto encoder : {config::EncoderLayer::kConvPool, config::EncoderLayer::kQnA}) {
    for (const auto decoder : {config::DecoderLayer::kTransposed, config::DecoderLayer::kQnA}) {
      AutoEncoder model = random_model<AutoEncoder>(
          config::AutoEncoderConfig{.encoder = encoder, .decoder = decoder}, 9);
      expect_as_torch(model, torch::randn({1, 96, 64, 3}));
    }
  }
}

TEST(EngineAutoEncoder, OtherChannelsAndWindows) {
  for (const int64_t kernel : {1, 5}) {
    for (config::AutoEncoderConfig config : all_auto_encoders(2)) {
      config.channels = kernel == 1 ? 1 : 5;
      config.kernel_size = kernel;
      AutoEncoder model = random_model<AutoEncoder>(config, 10);
      SCOPED_TRACE(config::to_json(config).dump());
      expect_as_torch(model, torch::randn({1, 21, 26, config.channels}));
    }
  }
}

}  // namespace
}  // namespace qna::testing
