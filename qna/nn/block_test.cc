// Blocks: the fused kernels against float64, masks, batches, wrong options.
#include "qna/nn/block.h"

#include "qna/nn/drop_path.h"
#include "qna/nn/mask.h"
#include "qna/nn/mixer_testonly.h"

namespace qna::nn {
namespace {

using namespace qna::nn::testing;
using kernels::Activation;
using ops::testing::ForcedImplementation;

struct Case {
  std::string what;
  BlockOptions options;
  int64_t height = 6, width = 7;
};

BlockOptions qna_block(const QnAOptions& qna) { return {.qna = qna}; }
BlockOptions attention_block(const WindowSelfAttentionOptions& attention) {
  return {.attention = attention};
}

int64_t in_features(const BlockOptions& o) {
  if (o.qna.has_value()) return o.qna->in_features;
  if (o.attention.has_value()) return o.attention->features;
  return std::visit([](const auto& options) { return options.in_features; }, *o.mixer);
}

std::vector<Case> cases() {
  const QnAOptions plain{.in_features = 16, .heads = 4};
  std::vector<Case> list;
  const auto add_qna = [&](std::string what, const auto& change, int64_t height = 6,
                           int64_t width = 7) {
    BlockOptions options = qna_block(plain);
    change(options);
    list.push_back({std::move(what), options, height, width});
  };
  add_qna("3 x 3", [](BlockOptions&) {});
  add_qna("7 x 7", [](BlockOptions& o) { o.qna->kernel_size = {7, 7}; });
  add_qna("rectangular", [](BlockOptions& o) { o.qna->kernel_size = {3, 5}; });
  add_qna("even", [](BlockOptions& o) { o.qna->kernel_size = {4, 2}; });
  add_qna("one query", [](BlockOptions& o) { o.qna->queries = 1; });
  add_qna("three queries", [](BlockOptions& o) { o.qna->queries = 3; });
  add_qna("bias", [](BlockOptions& o) { o.qna->bias = true; });
  add_qna("bias and layer scale", [](BlockOptions& o) {
    o.qna->bias = true;
    o.layer_scale = 0.3;
  });
  add_qna("no relative bias", [](BlockOptions& o) { o.qna->relative_bias = false; });
  add_qna("raw queries", [](BlockOptions& o) { o.qna->normalize_queries = false; });
  add_qna("layer scale", [](BlockOptions& o) { o.layer_scale = 0.3; });
  add_qna("narrow MLP", [](BlockOptions& o) { o.mlp_ratio = 0.5; });
  add_qna(
      "one pixel",
      [](BlockOptions& o) {
        o.qna->kernel_size = {7, 7};
      },
      1, 1);
  add_qna("wider than a vector", [](BlockOptions& o) { o.qna->in_features = 52; });
  const auto down = [](BlockOptions& o) {
    o.qna->stride = {2, 2};
    o.qna->features = 32;
  };
  for (const bool pool : {false, true}) {
    const std::string skip = pool ? ", average-pool skip" : ", convolution skip";
    const auto strided = [&](std::string what, std::array<int64_t, 2> kernel, int64_t height,
                             int64_t width) {
      add_qna(
          what + skip,
          [&](BlockOptions& o) {
            down(o);
            o.qna->kernel_size = kernel;
            o.average_pool_skip = pool;
          },
          height, width);
    };
    strided("stride 2", {3, 3}, 6, 8);
    strided("stride 2, odd map", {3, 3}, 7, 5);
    strided("stride 2, 7 x 7", {7, 7}, 6, 7);
    strided("stride 2, rectangular", {5, 3}, 6, 7);
    strided("stride 2, even", {2, 2}, 6, 7);
    strided("stride 2, one pixel", {3, 3}, 1, 1);
    add_qna("stride 2, layer scale" + skip, [&](BlockOptions& o) {
      down(o);
      o.average_pool_skip = pool;
      o.layer_scale = 0.3;
      o.qna->bias = true;
    });
  }
  add_qna("stride 1 x 3", [](BlockOptions& o) { o.qna->stride = {1, 3}; });
  const std::pair<const char*, AttentionScale> scales[] = {
      {"per tap", AttentionScale::kPerTap}, {"per query", AttentionScale::kPerQuery},
      {"ones", AttentionScale::kOnes},      {"average", AttentionScale::kAverage},
      {"signed", AttentionScale::kSigned},  {"none", AttentionScale::kNone}};
  for (const auto& [name, scale] : scales) {
    add_qna(std::string("scale ") + name,
            [&, s = scale](BlockOptions& o) { o.qna->attention_scale = s; });
  }
  const std::pair<const char*, Activation> activations[] = {
      {"none", Activation::kNone},   {"gelu_tanh", Activation::kGeluTanh},
      {"gelu", Activation::kGelu},   {"relu", Activation::kRelu},
      {"relu6", Activation::kRelu6}, {"silu", Activation::kSilu}};
  for (const auto& [name, activation] : activations) {
    add_qna(std::string("activation ") + name,
            [&, a = activation](BlockOptions& o) { o.activation = a; });
  }

  const auto add_attention = [&](std::string what, std::array<int64_t, 2> window, bool global,
                                 int64_t height, int64_t width, double layer_scale = 0) {
    BlockOptions options =
        attention_block({.features = 16, .heads = 2, .window = window, .global = global});
    options.layer_scale = layer_scale;
    list.push_back({std::move(what), options, height, width});
  };
  add_attention("window divides the map", {3, 3}, false, 6, 9);
  add_attention("window does not divide", {3, 3}, false, 7, 8);
  add_attention("rectangular window", {2, 5}, false, 6, 7);
  add_attention("window larger than the map", {7, 7}, false, 5, 3);
  add_attention("window on one pixel", {7, 7}, false, 1, 1);
  add_attention("window, layer scale", {4, 4}, false, 6, 7, 0.3);
  add_attention("global", {6, 7}, true, 6, 7);
  add_attention("global on a larger map", {3, 4}, true, 6, 7);
  add_attention("global on a smaller map", {9, 8}, true, 4, 5);
  BlockOptions many_heads = attention_block({.features = 24, .heads = 24, .window = {4, 4}});
  list.push_back({"heads of one feature", many_heads});
  BlockOptions odd = attention_block({.features = 15, .heads = 3, .window = {4, 4}});
  list.push_back({"features that fill no vector", odd});
  list.push_back(
      {"shifted windows",
       attention_block({.features = 16, .heads = 2, .window = {4, 4}, .shift = {2, 2}})});
  list.push_back(
      {"windows by LibTorch",
       attention_block(
           {.features = 16, .heads = 2, .window = {4, 4}, .method = AttentionMethod::kSdpa})});
  const std::pair<const char*, MixerOptions> mixers[] = {
      {"SASA", SasaOptions{.in_features = 16}},
      {"SASA, stride 2", SasaOptions{.in_features = 16, .out_features = 24, .stride = {2, 2}}},
      {"halo", HaloAttentionOptions{.in_features = 16, .block = {4, 4}}},
      {"halo, stride 2",
       HaloAttentionOptions{.in_features = 16, .out_features = 24, .stride = {2, 2}}},
      {"convolution", ConvolutionOptions{.in_features = 16}},
      {"convolution, stride 2",
       ConvolutionOptions{
           .in_features = 16, .out_features = 24, .kernel_size = {2, 2}, .stride = {2, 2}}},
      {"depth-wise convolution",
       ConvolutionOptions{.in_features = 16, .kernel_size = {5, 5}, .depthwise = true}},
      {"NesT's down-sampling", ConvPoolOptions{.in_features = 16}}};
  for (const auto& [what, mixer] : mixers) {
    list.push_back({what, {.mixer = mixer}});
    list.push_back({std::string(what) + ", layer scale, average-pool skip",
                    {.mixer = mixer, .average_pool_skip = true, .layer_scale = 0.3},
                    7,
                    5});
  }
  return list;
}

// A block whose every parameter matters.
Block make(const BlockOptions& options) {
  Block block(options);
  torch::NoGradGuard no_grad;
  for (Tensor& parameter : block->parameters()) {
    parameter.add_(torch::randn_like(parameter),
                   0.3 / std::sqrt(std::max<double>(1, parameter.size(0) / 8.0)));
  }
  block->eval();
  return block;
}

// Of three images the first has holes, the second is whole, the third is not there.
Tensor holes(int64_t height, int64_t width) {
  Tensor mask = torch::rand({3, height, width}) < 0.65;
  mask[0][0][0].fill_(true);
  mask[0][height - 1][width - 1].fill_(true);
  mask[1].fill_(true);
  mask[2].fill_(false);
  return mask;
}

// The mask of a block's output.
Tensor output_mask(const Block& block, const Tensor& mask) {
  if (!mask.defined() || !block->skip) return mask;
  const auto& stride = *block->skip->options.stride();
  return mask.slice(1, 0, std::nullopt, stride[0]).slice(2, 0, std::nullopt, stride[1]);
}

// Only the QnA layer, windows that are not shifted and the MLP are kernels of ours, beside which
// there is LibTorch, whose rounding depends on memory order and batch.
::testing::AssertionResult same_or_near(const Block& block, const Tensor& y,
                                        const Tensor& expected) {
  const auto& attention = block->options().attention;
  const bool windows = attention.has_value() && !attention->shifted() &&
                       attention->method == AttentionMethod::kFused;
  if (!(block->qna || windows) || block->skip) return near(y, expected, 2e-6);
  return torch::equal(y, expected) ? ::testing::AssertionSuccess()
                                   : ::testing::AssertionFailure() << "not the same bits";
}

// check(case, block, x) for every case, which then has a name in messages.
template <typename Check>
void each_case(uint64_t seed, int64_t batch, const Check& check) {
  torch::manual_seed(seed);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.what);
    Block block = make(c.options);
    check(c, block, torch::randn({batch, c.height, c.width, in_features(c.options)}));
  }
}

// Against float64. A block is a chain of four products of at most 208 terms, which round at 6e-8
// each, and weights that were folded into each other before: 2e-5 of the largest element.
TEST(Block, WithAndWithoutGradients) {
  each_case(41, 3, [](const Case& c, Block& block, const Tensor& normal) {
    const Tensor x = normal * 2 + 0.5;
    const auto exact_block = std::dynamic_pointer_cast<BlockImpl>(block->clone());
    exact_block->to(torch::kDouble);
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(with_mask ? "with mask" : "without mask");
      const Tensor mask = with_mask ? holes(c.height, c.width) : Tensor();
      const Tensor out_mask = output_mask(block, mask);
      const Tensor exact = at_valid(exact_block->forward(x.to(torch::kDouble), mask), out_mask);
      ASSERT_TRUE(exact.isfinite().all().item<bool>());
      EXPECT_EQ(exact.size(3), block->features());
      const Tensor with_gradient = block->forward(x, mask);
      EXPECT_TRUE(with_gradient.requires_grad());
      EXPECT_TRUE(near(at_valid(with_gradient, out_mask), exact, 2e-5));
      torch::NoGradGuard no_grad;
      for (const std::string& name : ops::testing::supported_implementations()) {
        const ForcedImplementation forced(name);
        const Tensor fused = block->forward(x, mask);
        EXPECT_EQ(kernels::last_implementation(), name);
        EXPECT_TRUE(fused.isfinite().all().item<bool>()) << name;
        EXPECT_TRUE(near(at_valid(fused, out_mask), exact, 2e-5)) << name;
      }
    }
  });
}

TEST(Block, TakesViews) {
  torch::NoGradGuard no_grad;
  each_case(42, 2, [](const Case&, Block& block, const Tensor& plain) {
    const Tensor x = plain.permute({0, 3, 2, 1}).contiguous().permute({0, 3, 2, 1});
    EXPECT_TRUE(same_or_near(block, block->forward(x), block->forward(x.contiguous())));
    EXPECT_EQ(block->forward(x.slice(0, 0, 0)).size(0), 0);  // a batch of none
  });
}

TEST(Block, RandomDepthInTrainingOnly) {
  torch::manual_seed(43);
  Block block = make({.qna = QnAOptions{.in_features = 16, .heads = 4}, .drop_path = 0.5});
  const Tensor x = torch::randn({8, 4, 4, 16});
  torch::NoGradGuard no_grad;
  const Tensor y = block->forward(x);
  EXPECT_TRUE(torch::equal(y, block->forward(x)));
  block->train();
  torch::manual_seed(44);
  const Tensor dropped = block->forward(x);
  EXPECT_FALSE(torch::allclose(dropped, y, 1e-3, 1e-3));
  torch::manual_seed(44);
  EXPECT_TRUE(torch::equal(block->forward(x), dropped));  // the same seed, the same depth
  // Both branches of an image can be dropped: then it passes as it is.
  bool passed = false;
  for (int i = 0; i < 20 && !passed; ++i) {
    passed = torch::equal(block->forward(x)[0], x[0]);
  }
  EXPECT_TRUE(passed);
}

// The branches against the modules they are made of, forward and in every gradient.
TEST(Block, AttentionBranchIsItsModules) {
  each_case(49, 3, [](const Case& c, Block& block, const Tensor& x) {
    if (!block->attention) return;
    const bool whole = block->attention->options().method == AttentionMethod::kFused &&
                       !block->attention->options().shifted();
    BlockOptions dropping = c.options;
    dropping.drop_path = 0.4;
    for (const bool with_mask : {false, true})
      for (const bool with_drop : {false, true}) {
        SCOPED_TRACE(with_mask ? "with mask" : "without mask");
        SCOPED_TRACE(with_drop ? "some images dropped" : "all images");
        Block fused(with_drop ? dropping : c.options);
        const auto from = block->parameters(), to = fused->parameters();
        for (size_t i = 0; i < from.size(); ++i) to[i].detach().copy_(from[i].detach());
        fused->train();
        const Tensor mask = with_mask ? holes(c.height, c.width) : Tensor();
        EXPECT_EQ(fused->attention->parameters_for_branch(*fused->norm1, x, mask).has_value(),
                  whole && !(with_mask && block->attention->options().global));
        const auto by_modules = [&](const Tensor& input) {
          const Tensor in = zero_masked(input, mask);
          Tensor mixed = fused->attention->forward(fused->norm1->forward(in), mask);
          if (fused->scale1.defined()) mixed = mixed * fused->scale1;
          const double rate = fused->options().drop_path;
          const Tensor y = in + drop_path(mixed, rate, true);
          Tensor second = fused->mlp->forward(fused->norm2->forward(y));
          if (fused->scale2.defined()) second = second * fused->scale2;
          return y + drop_path(second, rate, true);
        };
        std::vector<Tensor> found, expected;
        for (const bool is_fused : {true, false}) {
          const Tensor leaf = x.clone().requires_grad_();
          torch::manual_seed(50);  // the same images are dropped
          const Tensor y = at_valid(is_fused ? fused->forward(leaf, mask) : by_modules(leaf), mask);
          fused->zero_grad(true);
          (y * torch::linspace(-1, 2, y.numel()).view_as(y)).sum().backward();
          std::vector<Tensor>& results = is_fused ? found : expected;
          results = {y.detach(), leaf.grad()};
          for (const Tensor& parameter : fused->parameters()) results.push_back(parameter.grad());
        }
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(near(found[i], expected[i], 2e-5, 1)) << "result " << i;
        }
      }
  });
}

// A block with stride keeps its first half, since there the map changes its size.
TEST(Block, StrideDropsOnlyTheMlp) {
  torch::manual_seed(45);
  Block block =
      make({.qna = QnAOptions{.in_features = 8, .features = 16, .heads = 2, .stride = {2, 2}},
            .drop_path = 0.9});
  const Tensor x = torch::randn({1, 4, 4, 8});
  torch::NoGradGuard no_grad;
  const Tensor half =
      block->qna->forward(block->norm1->forward(x)) +
      torch::linear(x.slice(1, 0, 4, 2).slice(2, 0, 4, 2), block->skip->weight.flatten(1));
  block->train();
  int equal = 0;
  for (int i = 0; i < 50; ++i) equal += torch::allclose(block->forward(x), half, 1e-5, 1e-5);
  EXPECT_GT(equal, 30);  // 45 expected, with a deviation of 2
  EXPECT_LT(equal, 50);
}

TEST(Block, MaskedPlacesHaveNoInfluence) {
  each_case(46, 3, [](const Case& c, Block& block, const Tensor& x) {
    const Tensor mask = holes(c.height, c.width);
    expect_no_influence_of_masked(block, x, mask, output_mask(block, mask));
  });
}

// Images share nothing: alone or in a batch our kernels give the same bits.
TEST(Block, ImagesOfABatchAreIndependent) {
  torch::NoGradGuard no_grad;
  each_case(47, 5, [](const Case&, Block& block, const Tensor& x) {
    const Tensor y = block->forward(x);
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(same_or_near(block, block->forward(x.slice(0, i, i + 1)), y.slice(0, i, i + 1)))
          << i;
    }
  });
}

TEST(Block, LayerScale) {
  const Block with(BlockOptions{.qna = QnAOptions{.in_features = 8}, .layer_scale = 0.25});
  EXPECT_TRUE(torch::equal(with->scale1, torch::full({8}, 0.25)));
  EXPECT_TRUE(torch::equal(with->scale2, torch::full({8}, 0.25)));
  const Block without(BlockOptions{.qna = QnAOptions{.in_features = 8}});
  EXPECT_FALSE(without->scale1.defined());
  EXPECT_EQ(with->named_parameters().size(), without->named_parameters().size() + 2);
}

TEST(Block, OtherTypes) {
  torch::NoGradGuard no_grad;
  each_case(48, 1, [](const Case&, Block& block, const Tensor& x) {
    const Tensor expected = block->forward(x);
    block->to(torch::kBFloat16);
    const Tensor rounded = block->forward(x.to(torch::kBFloat16));
    EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
    // Weights, input and every step in between rounded at 2^-9.
    EXPECT_TRUE(near(rounded, expected, 0.06));
  });
}

TEST(Block, WrongOptions) {
  const QnAOptions qna{.in_features = 8};
  const WindowSelfAttentionOptions attention{.features = 8};
  const auto wrong = [](const BlockOptions& options, std::initializer_list<const char*> words) {
    expect_complaint([&] { Block block(options); }, words);
  };
  wrong({}, {"exactly one", "qna", "attention", "mixer"});
  wrong({.qna = qna, .attention = attention}, {"exactly one"});
  wrong({.qna = qna, .drop_path = 1}, {"drop_path", "below 1", "got 1"});
  wrong({.qna = qna, .drop_path = -0.5}, {"drop_path", "at least 0", "got -0.5"});
  wrong({.qna = qna, .mlp_ratio = 0}, {"mlp_ratio", "got 0"});
  wrong({.qna = qna, .mlp_ratio = 0.01}, {"mlp_ratio", "got 0.01"});
  wrong({.qna = QnAOptions{.in_features = 8, .features = 16}}, {"without stride", "8", "got 16"});
}

}  // namespace
}  // namespace qna::nn
