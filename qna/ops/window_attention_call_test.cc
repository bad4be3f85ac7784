// How the operator may be called: by name, on meta tensors, under autocast, with any strides and
// any number of threads, and what it says to wrong arguments.
#include <ATen/core/dispatch/Dispatcher.h>

#include "qna/ops/registration.h"
#include "qna/ops/window_problem_testonly.h"

namespace qna::ops::testing {
namespace {

using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                             const OptionalTensor&, const OptionalTensor&, at::IntArrayRef,
                             at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool);

auto operator_by_name() {
  register_operators();
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("qna::window_attention", "")
      .typed<Signature>();
}

TEST(WindowAttentionCall, ByName) {
  const WindowCase& c = window_cases()[2];
  const WindowInputs in = WindowInputs::random(c).as(at::kFloat, false);
  const WindowGeometry& g = c.geometry;
  const at::Tensor out =
      operator_by_name().call(in.scores, in.values, in.bias, in.tap_weights, in.mask, g.kernel_size,
                              g.stride, g.padding, g.dilation, c.parts.separate);
  EXPECT_TRUE(at::equal(out, run_op(in, c)));
}

// As TorchScript and Python call: boxed values on a stack.
TEST(WindowAttentionCall, Boxed) {
  const WindowCase& c = window_cases()[0];
  const WindowInputs in = WindowInputs::random(c).as(at::kFloat, false);
  register_operators();
  register_operators();  // a second time does nothing
  torch::jit::Stack stack = {in.scores,
                             in.values,
                             in.bias,
                             c10::IValue(),  // None
                             c10::IValue(),
                             std::vector<int64_t>{3, 3},
                             std::vector<int64_t>{1, 1},
                             std::vector<int64_t>{1, 1, 1, 1},
                             std::vector<int64_t>{1, 1},
                             false};
  c10::Dispatcher::singleton().findSchemaOrThrow("qna::window_attention", "").callBoxed(&stack);
  ASSERT_EQ(stack.size(), 1u);
  WindowInputs without = in;
  without.tap_weights = std::nullopt;
  EXPECT_TRUE(at::equal(stack[0].toTensor(), run_op(without, c)));
}

// Undefined tensors in the optional places are as good as none.
TEST(WindowAttentionCall, UndefinedIsNone) {
  const WindowCase& c = window_cases()[4];
  WindowInputs in = WindowInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  in.bias = in.tap_weights = in.mask = at::Tensor();
  const at::Tensor out = run_op(in, c);
  EXPECT_TRUE(at::equal(out, expected));
  out.sum().backward();
  EXPECT_TRUE(in.scores.grad().defined());
}

TEST(WindowAttentionCall, Uint8MaskIsABoolMask) {
  const WindowCase& c = window_cases()[2];
  WindowInputs in = WindowInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  in.mask = in.mask->to(at::kByte) * 200;
  EXPECT_TRUE(at::equal(run_op(in, c), expected));
}

TEST(WindowAttentionCall, Meta) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs in = WindowInputs::random(c).as(at::kFloat, false);
    const at::Tensor expected = run_op(in, c);
    const auto meta = [](const OptionalTensor& tensor) {
      return tensor.has_value() ? OptionalTensor(tensor->to(at::kMeta)) : std::nullopt;
    };
    const at::Tensor out = run_op({in.scores.to(at::kMeta), in.values.to(at::kMeta), meta(in.bias),
                                   meta(in.tap_weights), meta(in.mask)},
                                  c);
    EXPECT_TRUE(out.is_meta());
    EXPECT_EQ(out.sizes(), expected.sizes());
    EXPECT_EQ(out.scalar_type(), expected.scalar_type());
  }
}

// 16 TB of output: only a call that allocates nothing returns.
TEST(WindowAttentionCall, MetaAllocatesNothing) {
  const auto options = torch::TensorOptions().device(at::kMeta).dtype(at::kFloat);
  const at::Tensor out =
      window_attention(torch::empty({64, 16384, 16384, 2, 8}, options),
                       torch::empty({64, 16384, 16384, 8, 32}, options), std::nullopt, std::nullopt,
                       std::nullopt, {.kernel_size = {3, 3}, .padding = {1, 1, 1, 1}});
  EXPECT_EQ(out.sizes(), at::IntArrayRef({64, 16384, 16384, 8, 32}));
  EXPECT_EQ(out.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get(), nullptr);
}

TEST(WindowAttentionCall, Autocast) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    const auto expected = with_gradients(run_gather, inputs, c, at::kDouble);
    Autocast autocast(at::kBFloat16);
    const auto actual = with_gradients(run_op, inputs, c, at::kFloat);
    EXPECT_EQ(actual[0].scalar_type(), at::kBFloat16);
    for (size_t i = 1; i < actual.size(); ++i) EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
    // Inputs rounded at 2^-9; scores of size 6 are off by 1/80, and so are their exponentials.
    expect_all_near(actual, expected, 0.04);
  }
}

TEST(WindowAttentionCall, NonContiguousInputs) {
  for (const WindowCase& c : window_cases()) {
    SCOPED_TRACE(c.what);
    const WindowInputs plain = WindowInputs::random(c).as(at::kFloat, false);
    const at::Tensor expected = run_op(plain, c);
    // The same numbers behind other strides: every second element, or two dimensions swapped.
    const auto strided = [](const at::Tensor& t) {
      std::vector<int64_t> sizes = t.sizes().vec();
      sizes.back() *= 2;
      at::Tensor view = torch::full(sizes, 99.0f).slice(-1, 0, std::nullopt, 2);
      view.copy_(t);
      return view;
    };
    const auto swapped = [](const at::Tensor& t) {
      return t.transpose(1, 2).contiguous().transpose(1, 2);
    };
    WindowInputs other{strided(plain.scores), swapped(plain.values), plain.bias, plain.tap_weights,
                       plain.mask};
    if (other.bias.has_value()) other.bias = swapped(*plain.bias);
    if (other.tap_weights.has_value()) other.tap_weights = strided(*plain.tap_weights);
    if (other.mask.has_value()) other.mask = swapped(*plain.mask);
    EXPECT_TRUE(at::equal(run_op(other, c), expected));
    // Backward through the views, from an expanded gradient.
    const WindowInputs a = plain.as(at::kFloat);
    run_op(a, c).sum().backward();
    const WindowInputs b = plain.as(at::kFloat);
    run_op({b.scores.transpose(0, 2).contiguous().transpose(0, 2), swapped(b.values), b.bias,
            b.tap_weights, b.mask},
           c)
        .sum()
        .backward();
    for (size_t i = 0; i < a.given().size(); ++i) {
      EXPECT_TRUE(at::equal(a.given()[i].grad(), b.given()[i].grad()));
    }
  }
}

TEST(WindowAttentionCall, SameBitsForAnyNumberOfThreads) {
  const WindowCase cases[] = {
      {"large", {1, 61, 43}, 2, 8, 4, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, {.mask = true}},
      {"batch", {5, 14, 14}, 3, 3, 5, {{5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}}, {.separate = true}},
  };
  for (const WindowCase& c : cases) {
    SCOPED_TRACE(c.what);
    const WindowInputs inputs = WindowInputs::random(c);
    std::vector<at::Tensor> one;
    for (const int threads : {1, 2, 3, 1}) {
      ThreadCount count(threads);
      const auto results = with_gradients(run_op, inputs, c, at::kFloat);
      if (one.empty()) one = results;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(same(results[i], one[i])) << threads << " threads, result " << i;
      }
    }
  }
}

TEST(WindowAttentionCall, GradientsOnlyWhereWanted) {
  const WindowCase& c = window_cases()[0];
  const auto all = with_gradients(run_op, WindowInputs::random(c), c, at::kFloat);
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    const WindowInputs in = WindowInputs::random(c).as(at::kFloat, false);
    in.given()[wanted].requires_grad_();
    const at::Tensor out = run_op(in, c);
    out.backward(random_like(out, 7));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(in.given()[i].grad().defined(), i == wanted);
    }
    EXPECT_TRUE(at::equal(in.given()[wanted].grad(), all[wanted + 1]));
  }
}

TEST(WindowAttentionCall, InferenceMode) {
  const WindowCase& c = window_cases()[0];
  const WindowInputs in = WindowInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  c10::InferenceMode guard;
  const at::Tensor out = run_op(in, c);
  EXPECT_TRUE(out.is_inference());
  EXPECT_TRUE(at::equal(out, expected));
}

// A change: what is spoiled, and what the complaint must name.
struct WindowMistake {
  const char* what;
  std::function<void(WindowInputs&, WindowGeometry&)> make;
  std::vector<const char*> words;
};

const WindowMistake kWindowMistakes[] = {
    {"rank of scores",
     [](auto& in, auto&) { in.scores = in.scores.flatten(3); },
     {"scores", "5 dimensions", "[2, 6, 7, 6]"}},
    {"rank of values",
     [](auto& in, auto&) { in.values = in.values.squeeze(0).flatten(0, 1); },
     {"values", "5 dimensions", "4"}},
    {"dtype mismatch",
     [](auto& in, auto&) { in.scores = in.scores.to(at::kDouble); },
     {"scores", "dtype of values", "Float", "Double"}},
    {"integers",
     [](auto& in, auto&) {
       in.scores = in.scores.to(at::kLong);
       in.values = in.values.to(at::kLong);
     },
     {"values", "float32", "Long"}},
    {"complex",
     [](auto& in, auto&) {
       in.scores = in.scores.to(at::kComplexFloat);
       in.values = in.values.to(at::kComplexFloat);
     },
     {"values", "ComplexFloat"}},
    {"heads",
     [](auto& in, auto&) { in.scores = in.scores.narrow(4, 0, 2); },
     {"scores", "[2, 6, 7, 2, 3]", "[2, 6, 7, 2, 2]"}},
    {"width",
     [](auto& in, auto&) { in.values = in.values.narrow(2, 0, 6); },
     {"scores", "[2, 6, 6, 2, 3]", "[2, 6, 7, 2, 3]"}},
    {"bias",
     [](auto& in, auto&) { in.bias = in.bias->narrow(0, 0, 2); },
     {"bias", "[3, 3, 2, 3]", "[2, 3, 2, 3]"}},
    {"tap weights",
     [](auto& in, auto&) { in.tap_weights = in.tap_weights->unsqueeze(0); },
     {"tap_weights", "[3, 3, 2, 3]", "[1, 3, 3, 2, 3]"}},
    {"mask dtype",
     [](auto& in, auto&) { in.mask = in.mask->to(at::kFloat); },
     {"mask", "bool", "Float"}},
    {"mask size",
     [](auto& in, auto&) { in.mask = in.mask->narrow(1, 0, 5); },
     {"mask", "[2, 6, 7]", "[2, 5, 7]"}},
    {"stride 0",
     [](auto&, auto& g) {
       g.stride = {1, 0};
     },
     {"stride_w", "at least 1", "got 0"}},
    {"negative padding",
     [](auto&, auto& g) {
       g.padding = {1, 1, -2, 1};
     },
     {"pad_left", "at least 0", "got -2"}},
    {"dilation 0",
     [](auto&, auto& g) {
       g.dilation = {0, 1};
     },
     {"dilation_h", "at least 1", "got 0"}},
    {"kernel 0",
     [](auto& in, auto& g) {
       g.kernel_size = {0, 3};
       in.bias = in.tap_weights = std::nullopt;
     },
     {"kernel_h", "at least 1", "got 0"}},
    {"window too large",
     [](auto& in, auto& g) {
       g.kernel_size = {9, 3};
       in.bias = in.tap_weights = std::nullopt;
     },
     {"must fit", "9 rows", "8 padded rows"}},
    {"device",
     [](auto& in, auto&) { in.bias = in.bias->to(at::kMeta); },
     {"bias", "device", "cpu", "meta"}},
};

TEST(WindowAttentionCall, WrongArguments) {
  for (const WindowMistake& mistake : kWindowMistakes) {
    for (const bool requires_grad : {false, true})
      for (const bool meta : {false, true}) {
        if (meta && mistake.what == std::string("device")) continue;
        SCOPED_TRACE(std::string(mistake.what) + (meta ? ", meta" : ""));
        WindowInputs in = WindowInputs::random(window_cases()[2]).as(at::kFloat, requires_grad);
        WindowGeometry geometry = window_cases()[2].geometry;
        mistake.make(in, geometry);
        if (meta) {
          in.scores = in.scores.to(at::kMeta);
          in.values = in.values.to(at::kMeta);
          for (OptionalTensor* tensor : {&in.bias, &in.tap_weights, &in.mask}) {
            if (tensor->has_value()) *tensor = (*tensor)->to(at::kMeta);
          }
        }
        const std::string said = complaint([&] {
          window_attention(in.scores, in.values, in.bias, in.tap_weights, in.mask, geometry);
        });
        EXPECT_EQ(said.rfind("qna::window_attention: ", 0), 0u) << said;
        for (const char* word : mistake.words) {
          EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
        }
      }
  }
}

// Lists of the wrong length can only come through the dispatcher.
TEST(WindowAttentionCall, WrongListLengths) {
  const WindowInputs in = WindowInputs::random(window_cases()[0]).as(at::kFloat);
  const auto call = [&](at::IntArrayRef kernel_size, at::IntArrayRef stride,
                        at::IntArrayRef padding, at::IntArrayRef dilation) {
    return [=] {
      operator_by_name().call(in.scores, in.values, in.bias, in.tap_weights, in.mask, kernel_size,
                              stride, padding, dilation, false);
    };
  };
  expect_complaint(call({3, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}),
                   {"kernel_size", "2 numbers", "[3, 3, 3]"});
  expect_complaint(call({3, 3}, {2}, {1, 1, 1, 1}, {1, 1}), {"stride", "2 numbers", "[2]"});
  expect_complaint(call({3, 3}, {1, 1}, {1, 1}, {1, 1}), {"padding", "4 numbers", "[1, 1]"});
  expect_complaint(call({3, 3}, {1, 1}, {1, 1, 1, 1}, {}), {"dilation", "2 numbers", "[]"});
}

}  // namespace
}  // namespace qna::ops::testing
