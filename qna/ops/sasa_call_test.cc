// How the operator may be called: by name, on meta tensors, under autocast, with any strides and
// any number of threads, and what it says to wrong arguments.
#include <ATen/core/dispatch/Dispatcher.h>

#include "qna/ops/registration.h"
#include "qna/ops/sasa_problem_testonly.h"

namespace qna::ops::testing {
namespace {

using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const OptionalTensor&, const OptionalTensor&, at::IntArrayRef,
                             at::IntArrayRef, at::IntArrayRef, at::IntArrayRef);

auto operator_by_name() {
  register_operators();
  return c10::Dispatcher::singleton().findSchemaOrThrow("qna::sasa", "").typed<Signature>();
}

TEST(SasaCall, ByName) {
  const SasaCase& c = sasa_cases()[1];
  const SasaInputs in = SasaInputs::random(c).as(at::kFloat, false);
  const WindowGeometry& g = c.geometry;
  const at::Tensor out = operator_by_name().call(in.q, in.k, in.v, in.bias, in.mask, g.kernel_size,
                                                 g.stride, g.padding, g.dilation);
  EXPECT_TRUE(at::equal(out, run_op(in, c)));
}

// Undefined tensors in the optional places are as good as none.
TEST(SasaCall, UndefinedIsNone) {
  const SasaCase& c = sasa_cases()[2];
  SasaInputs in = SasaInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  const at::Tensor out =
      sasa(in.q, in.k, in.v, at::Tensor(), OptionalTensor(at::Tensor()), c.geometry);
  EXPECT_TRUE(at::equal(out, expected));
  out.sum().backward();
  EXPECT_TRUE(in.q.grad().defined());
}

TEST(SasaCall, Uint8MaskIsABoolMask) {
  const SasaCase& c = sasa_cases()[1];
  SasaInputs in = SasaInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  in.mask = in.mask->to(at::kByte) * 200;
  EXPECT_TRUE(at::equal(run_op(in, c), expected));
}

// Stored as [.., dim, heads], and as a part of something wider.
at::Tensor with_heads_fast(const at::Tensor& map) {
  return map.transpose(3, 4).contiguous().transpose(3, 4);
}
at::Tensor within_wider(const at::Tensor& map) {
  return torch::stack({torch::full_like(map, 99.0), map}, 3).select(3, 1);
}

TEST(SasaCall, MetaHasTheShapeAndStrides) {
  for (const SasaCase& c : sasa_cases())
    for (const bool heads_fast : {false, true}) {
      SCOPED_TRACE(c.what);
      SasaInputs in = SasaInputs::random(c).as(at::kFloat, false);
      if (heads_fast) in.q = with_heads_fast(in.q);
      const at::Tensor expected = run_op(in, c);
      const auto meta = [](const OptionalTensor& tensor) {
        return tensor.has_value() ? OptionalTensor(tensor->to(at::kMeta)) : std::nullopt;
      };
      const at::Tensor out = run_op({in.q.to(at::kMeta), in.k.to(at::kMeta), in.v.to(at::kMeta),
                                     meta(in.bias), meta(in.mask)},
                                    c);
      EXPECT_TRUE(out.is_meta());
      EXPECT_EQ(out.sizes(), expected.sizes());
      EXPECT_EQ(out.strides(), expected.strides());
      EXPECT_EQ(out.scalar_type(), expected.scalar_type());
    }
}

TEST(SasaCall, Autocast) {
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto expected = with_gradients(run_definition, inputs, c, at::kDouble);
    Autocast autocast(at::kBFloat16);
    const auto actual = with_gradients(run_op, inputs, c, at::kFloat);
    EXPECT_EQ(actual[0].scalar_type(), at::kBFloat16);
    for (size_t i = 1; i < actual.size(); ++i) EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
    // Inputs rounded at 2^-9; scores of size 6 are off by 1/80, and so are their exponentials.
    expect_all_near(actual, expected, 0.04);
  }
}

// The same numbers behind other strides give the same bits, and gradients too.
TEST(SasaCall, AnyStrides) {
  using Change = at::Tensor (*)(const at::Tensor&);
  const Change changes[] = {
      with_heads_fast,
      within_wider,
      [](const at::Tensor& t) { return within_wider(with_heads_fast(t)); },
      [](const at::Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); },
      [](const at::Tensor& t) {
        return t.permute({0, 3, 4, 1, 2}).contiguous().permute({0, 3, 4, 1, 2});
      },
      [](const at::Tensor& t) {
        return torch::stack({t, t}, -1).select(-1, 0);
      }};
  for (const SasaCase& c : sasa_cases()) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
    const auto expected = with_gradients(run_op, inputs, c, at::kFloat);
    for (size_t i = 0; i < std::size(changes); ++i) {
      SCOPED_TRACE(i);
      const auto changed = [&](const SasaInputs& in, const SasaCase& same) {
        return run_op({changes[i](in.q), changes[i](in.k), changes[i](in.v), in.bias, in.mask},
                      same);
      };
      const auto actual = with_gradients(changed, inputs, c, at::kFloat);
      for (size_t r = 0; r < actual.size(); ++r) EXPECT_TRUE(same(actual[r], expected[r])) << r;
    }
  }
}

// Heads-fast maps go in and come out as they are.
TEST(SasaCall, KeepsTheOrderOfChannels) {
  const SasaCase& c = sasa_cases()[0];
  const SasaInputs in = SasaInputs::random(c).as(at::kFloat, false);
  EXPECT_TRUE(run_op(in, c).is_contiguous());
  const at::Tensor out = sasa(with_heads_fast(in.q), in.k, in.v, in.bias, in.mask, c.geometry);
  EXPECT_TRUE(out.transpose(3, 4).is_contiguous());
}

TEST(SasaCall, SameBitsForAnyNumberOfThreads) {
  const SasaCase cases[] = {
      {"large", {1, 61, 43}, 8, 4, {{3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}, true, true},
      {"batch", {5, 14, 14}, 3, 5, {{5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}}},
  };
  for (const SasaCase& c : cases) {
    SCOPED_TRACE(c.what);
    const SasaInputs inputs = SasaInputs::random(c);
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

TEST(SasaCall, GradientsOnlyWhereWanted) {
  const SasaCase& c = sasa_cases()[0];
  const auto all = with_gradients(run_op, SasaInputs::random(c), c, at::kFloat);
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    const SasaInputs in = SasaInputs::random(c).as(at::kFloat, false);
    in.given()[wanted].requires_grad_();
    const at::Tensor out = run_op(in, c);
    out.backward(random_like(out, 7));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(in.given()[i].grad().defined(), i == wanted);
    EXPECT_TRUE(at::equal(in.given()[wanted].grad(), all[wanted + 1]));
  }
}

TEST(SasaCall, InferenceMode) {
  const SasaCase& c = sasa_cases()[0];
  const SasaInputs in = SasaInputs::random(c).as(at::kFloat);
  const at::Tensor expected = run_op(in, c);
  c10::InferenceMode guard;
  EXPECT_TRUE(at::equal(run_op(in, c), expected));
}

// A change: what is spoiled, and what the complaint must name.
struct SasaMistake {
  const char* what;
  std::function<void(SasaInputs&, WindowGeometry&)> make;
  std::vector<const char*> words;
};

const SasaMistake kSasaMistakes[] = {
    {"rank of q",
     [](auto& in, auto&) { in.q = in.q.flatten(3); },
     {"q must", "5 dimensions", "[2, 6, 7, 6]"}},
    {"rank of k",
     [](auto& in, auto&) { in.k = in.k.flatten(0, 1); },
     {"k must", "5 dimensions", "[12, 7, 3, 2]"}},
    {"dtype of k",
     [](auto& in, auto&) { in.k = in.k.to(at::kDouble); },
     {"k must", "dtype of q", "Float", "Double"}},
    {"integers",
     [](auto& in, auto&) {
       in.q = in.q.to(at::kLong);
       in.k = in.k.to(at::kLong);
       in.v = in.v.to(at::kLong);
     },
     {"q must", "float32", "Long"}},
    {"size of v",
     [](auto& in, auto&) { in.v = in.v.narrow(2, 0, 6); },
     {"v must", "[2, 6, 7, 3, 2]", "[2, 6, 6, 3, 2]"}},
    {"size of q",
     [](auto& in, auto&) { in.q = in.q.narrow(1, 0, 5); },
     {"q must", "[2, 6, 7, 3, 2]", "[2, 5, 7, 3, 2]"}},
    {"q of another window",
     [](auto&, auto& g) {
       g.padding = {0, 0, 0, 0};
     },
     {"q must", "[2, 4, 5, 3, 2]", "[2, 6, 7, 3, 2]"}},
    {"bias",
     [](auto& in, auto&) { in.bias = in.bias->narrow(0, 0, 2); },
     {"bias", "[3, 3, 3]", "[2, 3, 3]"}},
    {"dtype of bias",
     [](auto& in, auto&) { in.bias = in.bias->to(at::kInt); },
     {"bias", "float32", "Int"}},
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
    {"window too large",
     [](auto& in, auto& g) {
       g.kernel_size = {9, 3};
       in.bias = std::nullopt;
     },
     {"must fit", "9 rows", "8 padded rows"}},
    {"device",
     [](auto& in, auto&) { in.bias = in.bias->to(at::kMeta); },
     {"bias", "device", "cpu", "meta"}},
};

TEST(SasaCall, WrongArguments) {
  for (const SasaMistake& mistake : kSasaMistakes)
    for (const bool requires_grad : {false, true})
      for (const bool meta : {false, true}) {
        if (meta && mistake.what == std::string("device")) continue;
        SCOPED_TRACE(std::string(mistake.what) + (meta ? ", meta" : ""));
        SasaInputs in = SasaInputs::random(sasa_cases()[1]).as(at::kFloat, requires_grad);
        WindowGeometry geometry = sasa_cases()[1].geometry;
        mistake.make(in, geometry);
        if (meta) {
          for (at::Tensor* tensor : {&in.q, &in.k, &in.v}) *tensor = tensor->to(at::kMeta);
          for (OptionalTensor* tensor : {&in.bias, &in.mask}) {
            if (tensor->has_value()) *tensor = (*tensor)->to(at::kMeta);
          }
        }
        const std::string said =
            complaint([&] { sasa(in.q, in.k, in.v, in.bias, in.mask, geometry); });
        EXPECT_EQ(said.rfind("qna::sasa: ", 0), 0u) << said;
        for (const char* word : mistake.words) {
          EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
        }
      }
}

// Lists of the wrong length can only come through the dispatcher.
TEST(SasaCall, WrongListLengths) {
  const SasaInputs in = SasaInputs::random(sasa_cases()[0]).as(at::kFloat);
  expect_complaint(
      [&] {
        operator_by_name().call(in.q, in.k, in.v, in.bias, in.mask, {3, 3, 3}, {1, 1}, {1, 1, 1, 1},
                                {1, 1});
      },
      {"kernel_size", "2 numbers", "[3, 3, 3]"});
}

}  // namespace
}  // namespace qna::ops::testing
