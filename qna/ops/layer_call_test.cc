// How the layer may be called: by name, on meta tensors, under autocast, with any strides and any
// number of threads, and what it says to wrong arguments.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "qna/ops/layer_problem_testonly.h"
#include "qna/ops/registration.h"

namespace qna::ops::testing {
namespace {

TEST(LayerCall, BoxedByName) {
  const LayerCase& c = layer_cases()[1];
  const LayerInputs in = LayerInputs::random(c).as(at::kFloat, false);
  register_operators();
  torch::jit::Stack stack = {in.x,
                             in.p.score_weight,
                             in.p.value_weight,
                             in.p.value_bias,
                             in.p.out_weight,
                             in.p.out_bias,
                             in.p.bias,
                             in.p.tap_weights,
                             in.mask,
                             std::vector<int64_t>{3, 3},
                             std::vector<int64_t>{1, 1},
                             std::vector<int64_t>{1, 1, 1, 1},
                             std::vector<int64_t>{1, 1},
                             1};
  c10::Dispatcher::singleton().findSchemaOrThrow("qna::layer", "").callBoxed(&stack);
  ASSERT_EQ(stack.size(), 1u);
  EXPECT_TRUE(at::equal(stack[0].toTensor(), run_layer(in, c)));
}

LayerInputs on_meta(const LayerInputs& in) {
  const auto to = [](const OptionalTensor& tensor) {
    return tensor.has_value() ? OptionalTensor(tensor->to(at::kMeta)) : std::nullopt;
  };
  const LayerParameters& p = in.p;
  return {*to(in.x),
          {*to(p.score_weight), *to(p.value_weight), to(p.value_bias), *to(p.out_weight),
           to(p.out_bias), to(p.bias), to(p.tap_weights)},
          to(in.mask)};
}

TEST(LayerCall, Meta) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs in = LayerInputs::random(c).as(at::kFloat, false);
    const at::Tensor y = run_layer(on_meta(in), c);
    EXPECT_TRUE(y.is_meta());
    EXPECT_EQ(y.sizes(), run_layer(in, c).sizes());
  }
}

// 4 TB of input: only a call that allocates nothing returns.
TEST(LayerCall, MetaAllocatesNothing) {
  const LayerCase& c = layer_cases()[0];
  LayerInputs in = on_meta(LayerInputs::random(c).as(at::kFloat, false));
  in.x = torch::empty({512, 16384, 16384, 8}, in.x.options());
  const at::Tensor y = run_layer(in, c);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({512, 16384, 16384, 10}));
  EXPECT_EQ(y.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get(), nullptr);
}

TEST(LayerCall, Autocast) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs inputs = LayerInputs::random(c);
    const auto expected = with_gradients(run_layer_composite, inputs, c, at::kDouble);
    Autocast autocast(at::kBFloat16);
    const auto actual = with_gradients(run_layer, inputs, c, at::kFloat);
    EXPECT_EQ(actual[0].scalar_type(), at::kBFloat16);
    for (size_t i = 0; i < actual.size(); ++i) {
      if (i > 0) {
        EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
      }
      // The input is rounded to 2^-9 on the way in, everything of size 1 or so.
      EXPECT_TRUE(near(actual[i], expected[i], 0.03, 1)) << i;
    }
    torch::NoGradGuard no_grad;
    const at::Tensor y = run_layer(inputs.as(at::kFloat), c);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(near(y, expected[0], 0.03, 1));
  }
}

TEST(LayerCall, InferenceMode) {
  for (const LayerCase& c : layer_cases()) {
    const LayerInputs in = LayerInputs::random(c).as(at::kFloat);
    const at::Tensor expected = run_layer(in, c).detach();
    c10::InferenceMode guard;
    const at::Tensor y = run_layer(in, c);
    EXPECT_TRUE(y.is_inference());
    EXPECT_TRUE(near(y, expected, 1e-5, 1));
  }
}

// The same numbers behind other strides: an NCHW map, and weights that are transposed views.
TEST(LayerCall, NonContiguousInputs) {
  for (const LayerCase& c : layer_cases()) {
    SCOPED_TRACE(c.what);
    const LayerInputs plain = LayerInputs::random(c).as(at::kFloat);
    const auto swapped = [](const at::Tensor& t) {
      return t.transpose(0, -1).contiguous().transpose(0, -1);
    };
    LayerInputs other{swapped(plain.x), plain.p, plain.mask};
    other.p.score_weight = swapped(plain.p.score_weight);
    other.p.value_weight = swapped(plain.p.value_weight);
    other.p.out_weight = swapped(plain.p.out_weight);
    if (plain.p.bias.has_value()) other.p.bias = swapped(*plain.p.bias);
    if (plain.mask.has_value()) other.mask = swapped(*plain.mask);
    const at::Tensor y = run_layer(plain, c);
    // Matrix products may round otherwise for other strides.
    EXPECT_TRUE(near(run_layer(other, c), y, 1e-6, 1));
    const at::Tensor grad = upstream(y);
    const auto expected = torch::autograd::grad({y}, plain.given(), {grad});
    // An upstream gradient with strides of its own, too.
    const auto actual =
        torch::autograd::grad({run_layer(other, c)}, plain.given(), {swapped(grad)});
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(near(actual[i], expected[i], 1e-5, 1)) << i;
    }
    torch::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(run_layer(other, c), run_layer(plain, c)));
  }
}

TEST(LayerCall, SameBitsForAnyNumberOfThreads) {
  const LayerCase cases[] = {
      {"one image", {1, 67, 43, 12}, 2, 8, 2, 16},
      {"images",
       {5, 14, 15, 9},
       3,
       3,
       5,
       9,
       {{5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}},
       1,
       {.value_bias = true, .out_bias = true, .mask = true}},
      {"up-sampling",
       {1, 40, 21, 6},
       4,
       4,
       2,
       6,
       {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
       2,
       {.value_bias = true, .out_bias = true}},
      {"many pixels, few features", {1, 150, 90, 3}, 1, 1, 3, 2},
  };
  for (const LayerCase& c : cases)
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(std::string(c.what) + " " + c10::toString(type));
      const LayerInputs inputs = LayerInputs::random(c);
      std::vector<at::Tensor> one;
      for (const int threads : {1, 2, 3, 1}) {
        ThreadCount count(threads);
        std::vector<at::Tensor> results = with_gradients(run_layer, inputs, c, type);
        {
          torch::NoGradGuard no_grad;
          results.push_back(run_layer(inputs.as(type), c));
        }
        if (one.empty()) one = results;
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_TRUE(same(results[i], one[i])) << threads << " threads, result " << i;
        }
      }
    }
}

// A change: what is spoiled, and what the complaint must name.
struct LayerMistake {
  const char* what;
  std::function<void(LayerInputs&, LayerCase&)> make;
  std::vector<const char*> words;
};

// On "all parts": x [2, 6, 7, 5], 3 queries, 3 heads of 2, 7 out.
const LayerMistake kLayerMistakes[] = {
    {"rank of x",
     [](auto& in, auto&) { in.x = in.x.flatten(1, 2); },
     {"x must", "4 dimensions", "[2, 42, 5]"}},
    {"integers", [](auto& in, auto&) { in.x = in.x.to(at::kInt); }, {"x must", "Int"}},
    {"features of x",
     [](auto& in, auto&) { in.x = in.x.narrow(3, 0, 4); },
     {"score_weight", "[4, 3, 3]", "[5, 3, 3]"}},
    {"no features",
     [](auto& in, auto&) { in.x = in.x.narrow(3, 0, 0); },
     {"x must", "at least 1 feature", "got 0"}},
    {"rank of score_weight",
     [](auto& in, auto&) { in.p.score_weight = in.p.score_weight.flatten(1); },
     {"score_weight", "3 dimensions", "[5, 9]"}},
    {"value_weight",
     [](auto& in, auto&) { in.p.value_weight = in.p.value_weight.narrow(0, 0, 3); },
     {"value_weight", "[5, 3, 2]", "[3, 3, 2]"}},
    {"out_weight",
     [](auto& in, auto&) { in.p.out_weight = in.p.out_weight.narrow(1, 0, 1); },
     {"out_weight", "[3, 2, 7]", "[3, 1, 7]"}},
    {"value_bias",
     [](auto& in, auto&) { in.p.value_bias = in.p.value_bias->flatten(); },
     {"value_bias", "[3, 2]", "[6]"}},
    {"out_bias",
     [](auto& in, auto&) { in.p.out_bias = in.p.out_bias->narrow(0, 0, 6); },
     {"out_bias", "[7]", "[6]"}},
    {"bias",
     [](auto& in, auto&) { in.p.bias = in.p.bias->narrow(2, 0, 2); },
     {"bias", "[3, 3, 3, 3]", "[3, 3, 2, 3]"}},
    {"tap_weights",
     [](auto& in, auto&) { in.p.tap_weights = in.p.tap_weights->narrow(0, 0, 2); },
     {"tap_weights", "[3, 3, 3, 3]", "[2, 3, 3, 3]"}},
    {"mask dtype",
     [](auto& in, auto&) { in.mask = in.mask->to(at::kLong); },
     {"mask", "bool", "Long"}},
    {"mask size",
     [](auto& in, auto&) { in.mask = in.mask->narrow(0, 0, 1); },
     {"mask", "[2, 6, 7]", "[1, 6, 7]"}},
    {"stride 0",
     [](auto&, auto& c) {
       c.geometry.stride = {0, 1};
     },
     {"stride_h", "at least 1", "got 0"}},
    {"negative padding",
     [](auto&, auto& c) { c.geometry.padding[3] = -1; },
     {"pad_right", "at least 0", "got -1"}},
    {"upsample 0", [](auto&, auto& c) { c.upsample = 0; }, {"upsample", "at least 1", "got 0"}},
    {"upsample and queries", [](auto&, auto& c) { c.upsample = 2; }, {"2 x 2 queries", "got 3"}},
    {"device",
     [](auto& in, auto&) { in.p.out_weight = in.p.out_weight.to(at::kMeta); },
     {"out_weight", "device", "cpu", "meta"}},
};

TEST(LayerCall, WrongArguments) {
  for (const LayerMistake& mistake : kLayerMistakes)
    for (const bool requires_grad : {false, true})
      for (const bool meta : {false, true}) {
        if (meta && mistake.what == std::string("device")) continue;
        SCOPED_TRACE(std::string(mistake.what) + (meta ? ", meta" : ""));
        LayerCase c = layer_cases()[1];
        LayerInputs in = LayerInputs::random(c).as(at::kFloat, requires_grad);
        mistake.make(in, c);
        if (meta) in = on_meta(in);
        const std::string said = complaint([&] { run_layer(in, c); });
        EXPECT_EQ(said.rfind("qna::layer: ", 0), 0u) << said;
        for (const char* word : mistake.words) {
          EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
        }
      }
}

}  // namespace
}  // namespace qna::ops::testing
