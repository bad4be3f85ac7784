// The QnA layer against numbers made with the authors' JAX code: outputs and all gradients, by
// every way through this library.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "qna/engine/qna_layer.h"
#include "qna/kernels/implementation.h"
#include "qna/nn/qna_layer.h"
#include "qna/ops/composite.h"
#include "tests/engine_parts.h"
#include "tests/support/safetensors.h"

namespace qna {
namespace {

using nn::AttentionScale;
using nn::QnA;
using testing::SafeTensors;

// The golden numbers are float32 themselves, sums of up to some thousand terms: 1e-5 of a tensor's
// largest element, also in float64.
constexpr double kTolerance = 1e-5;

nn::QnAOptions options_from(const nlohmann::json& config) {
  const std::string scale = config.at("attn_scale");
  check(scale == "normal" || scale == "avg", "unknown attn_scale '{}'", scale);
  const int64_t kernel = config.at("kernel_size");
  const int64_t stride = config.at("stride");
  const int64_t padding = config.at("padding");
  return {.in_features = config.at("in_features"),
          .features = config.at("features"),
          .heads = config.at("heads"),
          .queries = config.at("n_queries"),
          .kernel_size = {kernel, kernel},
          .stride = {stride, stride},
          .padding = {{padding, padding, padding, padding}},
          .normalize_queries = config.at("normalize_q"),
          .attention_scale = scale == "normal" ? AttentionScale::kPerTap : AttentionScale::kAverage,
          .bias = config.at("use_bias")};
}

// Ours and the authors' name of each parameter. Their tables are [taps, L * heads], query-major,
// which is our [kh, kw, L, heads] flattened: only the shape differs.
struct Name {
  const char* ours;
  const char* theirs;
};
constexpr Name kNames[] = {
    {"query", "query"},
    {"key_weight", "Wk"},
    {"key_bias", "Wk_b"},
    {"value_weight", "to_v.kernel"},
    {"value_bias", "to_v.bias"},
    {"out_weight", "to_out.kernel"},
    {"out_bias", "to_out.bias"},
    {"relative_bias", "rpe_bias"},
    {"attention_scale", "attn_scale_weights"},
};

class GoldenLayer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);  // the maps are tiny; threads would wait for each other
    golden = testing::read_safetensors(std::string(QNA_GOLDEN_DIR) + "/" + GetParam());
    config = nlohmann::json::parse(golden.metadata.at("config"));
  }
  void TearDown() override { kernels::force_implementation(""); }

  QnA make_layer(at::ScalarType type) {
    QnA layer(options_from(config));
    torch::NoGradGuard no_grad;
    size_t loaded = 0;
    for (auto& item : layer->named_parameters()) {
      for (const Name& name : kNames) {
        if (item.key() != name.ours) continue;
        const torch::Tensor& value = golden.at(std::string("param.") + name.theirs);
        item.value().copy_(value.view(item.value().sizes()));
        ++loaded;
      }
    }
    // Nothing is left out on either side.
    EXPECT_EQ(loaded, layer->parameters().size());
    size_t given = 0;
    for (const auto& [name, tensor] : golden.tensors) given += name.rfind("param.", 0) == 0;
    EXPECT_EQ(loaded, given);
    layer->to(type);
    return layer;
  }

  torch::Tensor input(at::ScalarType type, bool requires_grad) {
    return golden.at("x").to(type).detach().clone().requires_grad_(requires_grad);
  }

  static void expect_near(const torch::Tensor& actual, const torch::Tensor& expected,
                          const std::string& what) {
    ASSERT_TRUE(actual.defined()) << what;
    const torch::Tensor wanted = expected.to(at::kDouble).view(actual.sizes());
    const double scale = wanted.abs().max().item<double>();
    const double error = (actual.to(at::kDouble) - wanted).abs().max().item<double>();
    EXPECT_LE(error, kTolerance * scale) << what << ", whose largest element is " << scale;
  }

  void expect_output(const torch::Tensor& y) {
    ASSERT_EQ(y.sizes(), golden.at("y").sizes());
    expect_near(y, golden.at("y"), "y");
  }

  void expect_gradients(const torch::Tensor& y, const torch::Tensor& x, const QnA& layer) {
    y.backward(golden.at("dy").to(y.scalar_type()));
    expect_near(x.grad(), golden.at("grad.x"), "grad.x");
    for (const auto& item : layer->named_parameters()) {
      for (const Name& name : kNames) {
        if (item.key() != name.ours) continue;
        if (item.key() == "key_bias") {
          // A key bias shifts all scores of a softmax alike: its gradient is 0 but for rounding,
          // which is measured by the gradient that flows through the same sum.
          const double scale = golden.at("grad.query").abs().max().item<double>();
          EXPECT_LE(item.value().grad().abs().max().item<double>(), kTolerance * scale);
          continue;
        }
        expect_near(item.value().grad(), golden.at(std::string("grad.") + name.theirs),
                    "grad." + item.key());
      }
    }
  }

  static torch::Tensor composite(const torch::Tensor& x, const QnA& layer) {
    const ops::QnALayerParameters p = layer->parameters_for_layer();
    const auto shape = ops::qna_layer_shape(x, p, std::nullopt, layer->geometry(), 1);
    return ops::qna_layer_composite(x, p.score_weight, p.value_weight, p.value_bias, p.out_weight,
                                    p.out_bias, p.bias, p.tap_weights, std::nullopt, shape, 1);
  }

  SafeTensors golden;
  nlohmann::json config;
};

TEST_P(GoldenLayer, InferenceByEveryImplementation) {
  const torch::Tensor x = input(at::kFloat, false);
  QnA layer = make_layer(at::kFloat);
  torch::NoGradGuard no_grad;
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(implementation.name);
    kernels::force_implementation(implementation.name);
    expect_output(layer(x));
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenLayer, EngineByEveryImplementation) {
  const torch::Tensor x = input(at::kFloat, false).contiguous();
  const QnA layer = make_layer(at::kFloat);
  const engine::ModelFile file = testing::file_of(*layer);
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(implementation.name);
    kernels::force_implementation(implementation.name);
    const engine::QnALayer served(engine::Tensors(file, kernels::WeightType::kFloat32),
                                  layer->options(), nullptr);
    testing::PartContext part;
    const torch::Tensor y = torch::empty_like(golden.at("y"));
    served.run(testing::map_of(x), testing::map_of(y), nullptr, part.worker);
    expect_output(y);
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenLayer, TrainingByEveryImplementation) {
  for (const kernels::Implementation& implementation : kernels::implementations()) {
    if (!implementation.supported) continue;
    SCOPED_TRACE(implementation.name);
    kernels::force_implementation(implementation.name);
    const torch::Tensor x = input(at::kFloat, true);
    QnA layer = make_layer(at::kFloat);
    const torch::Tensor y = layer(x);
    expect_output(y);
    expect_gradients(y, x, layer);
    EXPECT_EQ(kernels::last_implementation(), implementation.name);
  }
}

TEST_P(GoldenLayer, Composite) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(c10::toString(type));
    const torch::Tensor x = input(type, true);
    QnA layer = make_layer(type);
    const torch::Tensor y = composite(x, layer);
    expect_output(y);
    expect_gradients(y, x, layer);
  }
}

TEST_P(GoldenLayer, Float64) {
  const torch::Tensor x = input(at::kDouble, true);
  QnA layer = make_layer(at::kDouble);
  const torch::Tensor y = layer(x);
  EXPECT_EQ(y.scalar_type(), at::kDouble);
  expect_output(y);
  expect_gradients(y, x, layer);
  torch::NoGradGuard no_grad;
  expect_output(layer(x));
}

INSTANTIATE_TEST_SUITE_P(
    Files, GoldenLayer,
    ::testing::Values("layer_k3_s1_L1.safetensors", "layer_k3_s1_L2.safetensors",
                      "layer_k3_s1_L2_rawq_bias.safetensors", "layer_k3_s2_L2_down.safetensors",
                      "layer_k5_s1_L3_avg.safetensors", "layer_k7_s1_L2_rect.safetensors"),
    [](const auto& info) {
      const std::string file = info.param;
      return file.substr(0, file.find('.'));
    });

}  // namespace
}  // namespace qna
