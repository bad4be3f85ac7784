// The layer as a torch module: initial values, copies, files, text, and wrong options.
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <sstream>

#include "qna/nn/init.h"
#include "qna/nn/qna_layer.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::nn {
namespace {

// Large enough that the sample's moments lie within 2 % of the distribution's: the standard error
// of a deviation from n values is sigma / sqrt(2 n), 0.3 % for 65536.
TEST(Init, TruncatedNormal) {
  torch::manual_seed(1);
  torch::Tensor tensor = torch::empty({256, 256});
  truncated_normal_(tensor, 0.5);
  EXPECT_LE(tensor.abs().max().item<double>(), 2 * 0.5);
  EXPECT_GT(tensor.abs().max().item<double>(), 1.95 * 0.5);  // the cut is where it should be
  EXPECT_NEAR(tensor.mean().item<double>(), 0, 0.01);
  // A standard normal cut off at 2 deviates by 0.8796; 68.27 / 95.45 of it lies within 1.
  EXPECT_NEAR(tensor.std().item<double>(), 0.87963 * 0.5, 0.01);
  EXPECT_NEAR((tensor.abs() < 0.5).to(torch::kFloat).mean().item<double>(), 0.6827 / 0.9545, 0.01);
}

TEST(Init, LecunNormal) {
  torch::manual_seed(2);
  torch::Tensor tensor = torch::empty({400, 200});
  lecun_normal_(tensor, 400);
  EXPECT_NEAR(tensor.std().item<double>(), 1 / std::sqrt(400.0), 0.02 / 20);
  EXPECT_LE(tensor.abs().max().item<double>(), 2 / std::sqrt(400.0) / 0.8796 + 1e-6);
}

TEST(QnAModule, InitialDistribution) {
  torch::manual_seed(3);
  QnA layer(QnAOptions{.in_features = 100,
                       .features = 256,
                       .out_features = 64,
                       .heads = 16,
                       .queries = 32,
                       .kernel_size = {7, 7},
                       .bias = true});
  const auto deviation = [](const torch::Tensor& t) { return t.std().item<double>(); };
  // Fan-in of each product; queries by the size of a head.
  EXPECT_NEAR(deviation(layer->key_weight), 1 / std::sqrt(100.0), 0.03 / 10);
  EXPECT_NEAR(deviation(layer->value_weight), 1 / std::sqrt(100.0), 0.03 / 10);
  EXPECT_NEAR(deviation(layer->out_weight), 1 / std::sqrt(256.0), 0.03 / 16);
  EXPECT_LE(layer->query.abs().max().item<double>(), 2 / std::sqrt(16.0) + 1e-6);
  EXPECT_NEAR(deviation(layer->query), 0.87963 / std::sqrt(16.0), 0.03 / 4);
  EXPECT_NEAR(deviation(layer->attention_scale), 0.02, 0.001);
  EXPECT_GT(layer->attention_scale.abs().max().item<double>(), 0.05);  // normal, not cut off
  for (const torch::Tensor& zero :
       {layer->key_bias, layer->value_bias, layer->out_bias, layer->relative_bias}) {
    EXPECT_EQ(zero.abs().max().item<double>(), 0);
  }
  QnA ones(QnAOptions{.in_features = 8, .attention_scale = AttentionScale::kOnes});
  EXPECT_TRUE(torch::equal(ones->attention_scale, torch::ones({3, 3, 2, 8})));
  QnA per_query(QnAOptions{.in_features = 1024,
                           .heads = 512,
                           .queries = 8,
                           .attention_scale = AttentionScale::kPerQuery});
  EXPECT_NEAR(deviation(per_query->attention_scale), 0.02, 0.002);
}

TEST(QnAModule, SeedDecides) {
  const auto make = [](uint64_t seed) {
    torch::manual_seed(seed);
    return QnA(QnAOptions{.in_features = 8});
  };
  EXPECT_TRUE(torch::equal(make(5)->query, make(5)->query));
  EXPECT_FALSE(torch::equal(make(5)->query, make(6)->query));
}

TEST(QnAModule, DefaultFeatures) {
  EXPECT_EQ(QnA(QnAOptions{.in_features = 16})->options().features, 16);
  const QnA wider(QnAOptions{.in_features = 16, .out_features = 32});
  EXPECT_EQ(wider->options().features, 32);
  const QnA inner(QnAOptions{.in_features = 16, .features = 24});
  EXPECT_EQ(inner->options().out_features, 24);
  const QnA all(QnAOptions{.in_features = 16, .features = 24, .out_features = 8});
  EXPECT_EQ(all->value_weight.sizes(), at::IntArrayRef({16, 24}));
  EXPECT_EQ(all->out_weight.sizes(), at::IntArrayRef({24, 8}));
}

TEST(QnAModule, Clone) {
  for (const bool bias : {false, true}) {
    QnA layer(QnAOptions{.in_features = 8, .heads = 2, .kernel_size = {3, 5}, .bias = bias});
    const auto copy = std::dynamic_pointer_cast<QnAImpl>(layer->clone());
    ASSERT_NE(copy, nullptr);
    const torch::Tensor x = torch::randn({1, 5, 6, 8});
    EXPECT_TRUE(torch::equal(copy->forward(x), layer->forward(x)));
    EXPECT_EQ(copy->parameters().size(), layer->parameters().size());
    // A copy, not a second name.
    torch::NoGradGuard no_grad;
    const torch::Tensor before = layer->forward(x);
    for (torch::Tensor& parameter : copy->parameters()) parameter.add_(1);
    EXPECT_TRUE(torch::equal(layer->forward(x), before));
    EXPECT_FALSE(torch::equal(copy->forward(x), before));
  }
}

TEST(QnAModule, SaveAndLoad) {
  const QnAOptions options{.in_features = 8, .heads = 2, .bias = true};
  QnA saved(options);
  {
    torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : saved->parameters()) parameter.normal_();
  }
  std::stringstream stream;
  torch::save(saved, stream);
  QnA loaded(options);
  torch::load(loaded, stream);
  const torch::Tensor x = torch::randn({1, 5, 6, 8});
  EXPECT_TRUE(torch::equal(loaded(x), saved(x)));
  for (const auto& item : saved->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), loaded->named_parameters()[item.key()])) << item.key();
  }
}

TEST(QnAModule, ToOtherTypes) {
  QnA layer(QnAOptions{.in_features = 8, .heads = 2});
  const torch::Tensor x = torch::randn({1, 5, 6, 8});
  const torch::Tensor y = layer(x).detach();
  layer->to(torch::kDouble);
  EXPECT_LE((layer(x.to(torch::kDouble)).detach() - y).abs().max().item<double>(), 1e-5);
  layer->to(torch::kBFloat16);
  const torch::Tensor rounded = layer(x.to(torch::kBFloat16)).detach();
  EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
  // Weights and input rounded at 2^-9 each, sums of tens of them.
  EXPECT_LE((rounded - y).abs().max().item<double>(), 0.05 * y.abs().max().item<double>());
}

TEST(QnAModule, PrettyPrint) {
  std::ostringstream plain;
  plain << QnA(QnAOptions{.in_features = 16,
                          .out_features = 32,
                          .heads = 4,
                          .queries = 3,
                          .kernel_size = {7, 5},
                          .stride = {2, 1}});
  EXPECT_EQ(plain.str(), "qna::nn::QnA(16 -> 32, heads=4, queries=3, kernel_size=7x5, stride=2x1)");
  std::ostringstream up;
  up << QnA(QnAOptions{.in_features = 16, .upsample = 2});
  EXPECT_NE(up.str().find("upsample=2"), std::string::npos) << up.str();
}

TEST(QnAModule, FusedKernelWithoutGradients) {
  QnA layer(QnAOptions{.in_features = 8, .heads = 2});
  const torch::Tensor x = torch::randn({1, 5, 6, 8});
  for (const std::string& name : ops::testing::supported_implementations()) {
    const ops::testing::ForcedImplementation forced(name);
    c10::InferenceMode guard;
    layer(x);
    EXPECT_EQ(kernels::last_implementation(), name);
  }
}

struct Mistake {
  const char* what;
  QnAOptions options;
  std::vector<const char*> words;
};

TEST(QnAModule, WrongOptions) {
  const Mistake mistakes[] = {
      {"no features", {}, {"in_features", "at least 1", "got 0"}},
      {"negative in", {.in_features = -3}, {"in_features", "got -3"}},
      {"negative features", {.in_features = 8, .features = -8}, {"features", "got -8"}},
      {"negative out", {.in_features = 8, .out_features = -1}, {"out_features", "got -1"}},
      {"heads", {.in_features = 16, .heads = 3}, {"heads", "divide", "16", "got 3"}},
      {"heads 0", {.in_features = 16, .heads = 0}, {"heads", "at least 1", "got 0"}},
      {"queries 0", {.in_features = 16, .queries = 0}, {"queries", "at least 1", "got 0"}},
      {"queries -1", {.in_features = 16, .queries = -1}, {"queries", "at least 1", "got -1"}},
      {"upsample 0", {.in_features = 16, .upsample = 0}, {"upsample", "got 0"}},
      {"upsample -2", {.in_features = 16, .upsample = -2}, {"upsample", "got -2"}},
      {"upsample and queries",
       {.in_features = 16, .queries = 5, .upsample = 2},
       {"up-sampling by 2", "4 queries", "got 5"}},
      {"kernel", {.in_features = 16, .kernel_size = {3, 0}}, {"kernel_size", "width", "got 0"}},
      {"stride", {.in_features = 16, .stride = {-1, 1}}, {"stride", "height", "got -1"}},
      {"dilation", {.in_features = 16, .dilation = {1, 0}}, {"dilation", "width", "got 0"}},
      {"padding", {.in_features = 16, .padding = {{0, -1, 0, 0}}}, {"padding", "got -1"}},
      {"signed, odd",
       {.in_features = 9, .heads = 3, .queries = 1, .attention_scale = AttentionScale::kSigned},
       {"signed", "1 x 3"}},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.what);
    const std::string said = ops::testing::complaint([&] { QnA layer(mistake.options); });
    EXPECT_TRUE(said.starts_with("QnA: ")) << said;
    ops::testing::expect_words(said, mistake.words);
  }
}

TEST(QnAModule, WrongInputs) {
  QnA layer(QnAOptions{.in_features = 8, .heads = 2});
  const auto wrong = [&](const torch::Tensor& x, const torch::Tensor& mask, const char* word) {
    ops::testing::expect_complaint([&] { layer(x, mask); }, {word});
  };
  wrong(torch::randn({1, 5, 6, 7}), {}, "[1, 5, 6, 7]");
  wrong(torch::randn({5, 6, 8}), {}, "[5, 6, 8]");
  wrong({}, {}, "undefined");
  wrong(torch::randn({1, 5, 6, 8}), torch::ones({1, 5, 5}, torch::kBool), "mask");
  // As many queries as up-sampling needs may be said, or left out as 0.
  EXPECT_NO_THROW(QnA(QnAOptions{.in_features = 8, .queries = 9, .upsample = 3}));
  EXPECT_NO_THROW(QnA(QnAOptions{.in_features = 8, .queries = 0, .upsample = 3}));
}

}  // namespace
}  // namespace qna::nn
