// One sweep for all operators: an operator is one row, a struct Operator, and gets every check of
// operator_sweep_test.cc. The rows stand in the operators' own tests, above what only they have.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <functional>
#include <ostream>

#include "qna/kernels/dense.h"
#include "qna/ops/tensors_testonly.h"

namespace qna::ops::testing {

// ---- cases ----

// An operator looks at those of a case's numbers and parts that it has.
struct Widths {
  int64_t in = 0;  // features of x
  int64_t queries = 0, heads = 0, dim = 0;
  int64_t out = 0;  // features of y, or hidden ones of an MLP
};

struct Parts {
  bool bias = true;
  bool tap_weights = true;
  bool mask = false;
  bool value_bias = false;
  bool out_bias = false;
  bool residual = false;
  bool drop_factor = false;
  bool separate = false;
  int64_t upsample = 1;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
};

inline constexpr WindowGeometry k3x3{.padding = {1, 1, 1, 1}};

struct Case {
  Case(const char* what, std::array<int64_t, 3> map, Widths widths,
       const WindowGeometry& geometry = k3x3, Parts parts = {})
      : what(what), map(map), widths(widths), geometry(geometry), parts(parts) {}

  // Whether gradients follow small changes. Not across a kink, on either side of which one may be.
  bool smooth() const {
    using kernels::Activation;
    return parts.activation != Activation::kRelu && parts.activation != Activation::kRelu6;
  }

  const char* what;
  std::array<int64_t, 3> map;  // batch, height, width
  Widths widths;
  WindowGeometry geometry;
  Parts parts;
};

// Windows of every kind on maps of every kind, for all operators that have windows.
inline const std::vector<Case>& window_cases() {
  static const std::vector<Case> cases = {
      Case("usual", {2, 6, 7}, {8, 2, 4, 3, 10}),
      Case("masked", {2, 6, 7}, {4, 2, 3, 2, 5}, k3x3, {.mask = true}),
      Case("all parts", {2, 6, 7}, {5, 3, 3, 2, 7}, k3x3,
           {.mask = true, .value_bias = true, .out_bias = true}),
      Case("no parts", {1, 5, 9}, {4, 2, 2, 4, 8}, k3x3, {.bias = false, .tap_weights = false}),
      Case("no tables", {1, 5, 6}, {5, 3, 2, 4, 6}, k3x3, {.bias = false, .tap_weights = false}),
      Case("no bias", {1, 5, 6}, {4, 1, 5, 1, 6}, {.padding = {0, 0, 0, 0}}, {.bias = false}),
      Case("no bias, wider heads", {1, 5, 6}, {4, 1, 2, 5, 6}, {.padding = {0, 0, 0, 0}},
           {.bias = false}),
      Case("no tap weights", {1, 5, 6}, {4, 2, 1, 5, 3}, k3x3, {.tap_weights = false}),
      Case("one head", {1, 5, 6}, {4, 1, 1, 9, 3}, k3x3, {.bias = false, .mask = true}),
      Case("one dimension", {1, 5, 6}, {4, 1, 9, 1, 3}),
      Case("separate", {2, 5, 4}, {5, 4, 2, 3, 4}, k3x3, {.separate = true}),
      Case("masked, separate", {1, 6, 5}, {4, 3, 2, 2, 4}, k3x3, {.mask = true, .separate = true}),
      Case("even, rectangular", {1, 7, 8}, {4, 2, 3, 2, 5},
           {.kernel_size = {2, 4}, .padding = {0, 1, 1, 2}}),
      Case("even, rectangular, dilated", {1, 8, 9}, {3, 1, 5, 1, 2},
           {{2, 4}, {1, 3}, {1, 2, 0, 5}, {3, 2}}, {.value_bias = true}),
      Case("strided", {2, 9, 8}, {4, 2, 2, 3, 5}, {.stride = {2, 3}, .padding = {1, 1, 1, 1}}),
      Case("down-sampling", {2, 9, 11}, {6, 2, 4, 3, 12},
           {.stride = {2, 2}, .padding = {1, 1, 1, 1}}, {.out_bias = true}),
      Case("dilated", {1, 9, 10}, {4, 2, 2, 3, 5},
           {.kernel_size = {3, 2}, .padding = {2, 2, 1, 2}, .dilation = {2, 3}}),
      Case("one-sided padding", {1, 5, 5}, {4, 2, 2, 2, 5},
           {.stride = {1, 2}, .padding = {2, 0, 0, 1}}),
      Case("window larger than the map", {1, 2, 3}, {4, 2, 2, 2, 4},
           {.kernel_size = {7, 7}, .padding = {3, 3, 3, 3}}),
      Case("rectangular, larger than the map", {1, 2, 3}, {4, 2, 2, 2, 4},
           {.kernel_size = {7, 5}, .padding = {3, 3, 2, 2}}),
      Case("windows in the padding", {1, 2, 2}, {4, 2, 2, 2, 4}, {.padding = {4, 3, 5, 3}},
           {.mask = true, .value_bias = true}),
      Case("windows in the padding, strided", {1, 3, 2}, {4, 2, 2, 2, 5},
           {.stride = {2, 1}, .padding = {5, 4, 4, 5}}, {.mask = true}),
      Case("one pixel", {1, 1, 1}, {1, 1, 1, 1, 1}, {.kernel_size = {1, 1}}),
      Case("images of one pixel", {3, 1, 1}, {4, 2, 3, 2, 5}, {.kernel_size = {1, 1}}),
      Case("one row", {1, 1, 9}, {4, 2, 2, 2, 5}),
      Case("no image", {0, 4, 5}, {6, 2, 2, 3, 4}, k3x3, {.value_bias = true, .out_bias = true}),
      Case("up-sampling by 2", {2, 4, 5}, {6, 4, 3, 4, 5}, k3x3,
           {.tap_weights = false, .value_bias = true, .out_bias = true, .upsample = 2}),
      Case("up-sampling by 3, all parts", {1, 4, 3}, {6, 9, 2, 3, 4}, k3x3,
           {.mask = true, .value_bias = true, .out_bias = true, .upsample = 3}),
      Case("no image, up-sampling", {0, 4, 5}, {6, 4, 2, 3, 4}, k3x3, {.upsample = 2}),
  };
  return cases;
}

// Several bands, tasks and chunks of pixels, so that their sums meet.
inline const std::vector<Case>& large_window_cases() {
  static const WindowGeometry k5x5{.kernel_size = {5, 5}, .padding = {2, 2, 2, 2}};
  static const std::vector<Case> cases = {
      Case("one image", {1, 70, 45}, {12, 2, 8, 2, 16}),
      Case("one image of odd sides", {1, 67, 43}, {12, 2, 8, 2, 16}),
      Case("one masked image", {1, 61, 43}, {6, 2, 8, 4, 8}, k3x3, {.mask = true}),
      Case("many pixels, few features", {1, 150, 90}, {3, 1, 1, 3, 2}),
      Case("wide", {1, 6, 400}, {4, 2, 8, 2, 4}, k3x3, {.value_bias = true}),
      Case("images", {18, 9, 8}, {12, 2, 3, 5, 9}, k5x5,
           {.mask = true, .value_bias = true, .out_bias = true}),
      Case("masked images", {5, 14, 15}, {9, 3, 3, 5, 9}, k5x5,
           {.mask = true, .value_bias = true, .out_bias = true}),
      Case("separate", {5, 14, 14}, {4, 3, 3, 5, 6}, k5x5, {.separate = true}),
      Case("strided", {2, 61, 30}, {5, 2, 4, 4, 8}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}),
      Case("pixels no window sees", {1, 40, 31}, {5, 2, 2, 4, 8},
           {.kernel_size = {2, 2}, .stride = {5, 3}}, {.value_bias = true}),
      Case("up-sampling", {1, 40, 21}, {6, 4, 4, 2, 6}, k3x3,
           {.value_bias = true, .out_bias = true, .upsample = 2}),
  };
  return cases;
}

inline const Case& case_named(const std::vector<Case>& cases, std::string_view what) {
  for (const Case& c : cases) {
    if (what == c.what) return c;
  }
  fail("no case '{}'", what);
}

// ---- arguments ----

enum class Role {
  kMap,     // its dtype is the arithmetic's; autocast lowers it
  kTable,   // weights and biases, which may have a dtype of their own
  kFactor,  // numbers without gradient
  kMask,    // bool
};

struct Argument {
  const char* name;
  Role role;
  at::Tensor tensor;  // undefined: absent
  bool wants_gradient() const {
    return tensor.defined() && (role == Role::kMap || role == Role::kTable);
  }
};

// The tensors of one call, in the operator's order and by its names for them.
struct Arguments {
  std::vector<Argument> list;

  at::Tensor& operator[](std::string_view name) {
    for (Argument& argument : list) {
      if (name == argument.name) return argument.tensor;
    }
    fail("no argument '{}'", name);
  }
  const at::Tensor& operator[](std::string_view name) const {
    return const_cast<Arguments&>(*this)[name];
  }
  OptionalTensor optional(std::string_view name) const {
    const at::Tensor& tensor = (*this)[name];
    return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
  }

  // What is there, each changed.
  template <typename Change>
  Arguments each(const Change& change) const {
    Arguments copy = *this;
    for (Argument& argument : copy.list) {
      if (argument.tensor.defined()) argument.tensor = change(argument);
    }
    return copy;
  }
  Arguments as(at::ScalarType type, bool requires_grad = true) const {
    return each([&](const Argument& argument) {
      return argument.role == Role::kMask
                 ? argument.tensor
                 : leaf(argument.tensor, type, requires_grad && argument.wants_gradient());
    });
  }
  // Those that get a gradient.
  std::vector<Argument> differentiable() const {
    std::vector<Argument> found;
    for (const Argument& argument : list) {
      if (argument.wants_gradient()) found.push_back(argument);
    }
    return found;
  }
  std::vector<at::Tensor> given() const {
    std::vector<at::Tensor> tensors;
    for (const Argument& argument : differentiable()) tensors.push_back(argument.tensor);
    return tensors;
  }
};

// Numbers that float32 holds, so that every dtype starts from the same.
inline at::Tensor random_numbers(at::IntArrayRef sizes, double scale = 1) {
  return (torch::randn(sizes) * scale).to(at::kDouble);
}
inline Argument random_map(const char* name, at::IntArrayRef sizes, double scale = 1) {
  return {name, Role::kMap, random_numbers(sizes, scale)};
}
inline Argument random_table(const char* name, at::IntArrayRef sizes, bool wanted = true) {
  return {name, Role::kTable, wanted ? random_numbers(sizes) : at::Tensor()};
}
inline Argument random_weight(const char* name, at::IntArrayRef sizes, int64_t fan_in) {
  return {name, Role::kTable, random_numbers(sizes, 1 / std::sqrt(static_cast<double>(fan_in)))};
}
inline Argument random_mask(const Case& c) {
  return {"mask", Role::kMask, c.parts.mask ? torch::rand(c.map) < 0.7 : at::Tensor()};
}
// 0, 0.75, 1.5, ... for the images.
inline Argument drop_factor(const Case& c) {
  return {"drop_factor", Role::kFactor,
          c.parts.drop_factor ? torch::arange(c.map[0]).to(at::kDouble) * 0.75 : at::Tensor()};
}

// Numbers that every dtype holds, so that they are the same in all.
inline at::Tensor random_like(const at::Tensor& tensor, uint64_t seed = 7) {
  torch::manual_seed(seed);
  return torch::randn(tensor.sizes()).to(at::kBFloat16).to(tensor.scalar_type());
}

// ---- operators ----

using Function = std::function<at::Tensor(const Arguments&, const Case&)>;

// What may differ, of the largest element (at least 1).
struct Tolerances {
  double output, gradient;  // in float32
  double second;            // gradients of gradients in float32, which have more terms that cancel
  double exact = 1e-12;     // all of them in float64
  double autocast_output, autocast_gradient;
  // In 16 bits, as multiples of 2^-8 and 2^-11; `inference`: outputs without gradients.
  double half_output = 1, half_gradient = 1, half_inference = 1;
};

// What is spoiled, and what the complaint must name.
struct Mistake {
  const char* what;
  std::function<void(Arguments&, Case&)> make;
  std::vector<const char*> words;
};

// With those that can be made in every call with windows and a mask of [2, 6, 7].
inline std::vector<Mistake> with_window_mistakes(std::vector<Mistake> mistakes) {
  const auto without_tables = [](Arguments& in) {
    for (Argument& argument : in.list) {
      const std::string_view name = argument.name;
      if (name == "bias" || name == "tap_weights") argument.tensor.reset();
    }
  };
  const Mistake more[] = {
      {"device",
       [](Arguments& in, Case&) { in["bias"] = in["bias"].to(at::kMeta); },
       {"bias", "device", "cpu", "meta"}},
      {"dtype of bias",
       [](Arguments& in, Case&) { in["bias"] = in["bias"].to(at::kInt); },
       {"bias", "float32", "Int"}},
      {"mask of floats",
       [](Arguments& in, Case&) { in["mask"] = in["mask"].to(at::kFloat); },
       {"mask", "bool", "Float"}},
      {"mask of integers",
       [](Arguments& in, Case&) { in["mask"] = in["mask"].to(at::kLong); },
       {"mask", "bool", "Long"}},
      {"rows of the mask",
       [](Arguments& in, Case&) { in["mask"] = in["mask"].narrow(1, 0, 5); },
       {"mask", "[2, 6, 7]", "[2, 5, 7]"}},
      {"images of the mask",
       [](Arguments& in, Case&) { in["mask"] = in["mask"].narrow(0, 0, 1); },
       {"mask", "[2, 6, 7]", "[1, 6, 7]"}},
      {"stride 0 of rows",
       [](Arguments&, Case& c) { c.geometry.stride[0] = 0; },
       {"stride_h", "at least 1", "got 0"}},
      {"stride 0 of columns",
       [](Arguments&, Case& c) { c.geometry.stride[1] = 0; },
       {"stride_w", "at least 1", "got 0"}},
      {"negative padding on the left",
       [](Arguments&, Case& c) { c.geometry.padding[2] = -2; },
       {"pad_left", "at least 0", "got -2"}},
      {"negative padding on the right",
       [](Arguments&, Case& c) { c.geometry.padding[3] = -1; },
       {"pad_right", "at least 0", "got -1"}},
      {"dilation 0",
       [](Arguments&, Case& c) { c.geometry.dilation[0] = 0; },
       {"dilation_h", "at least 1", "got 0"}},
      {"window of no rows",
       [=](Arguments& in, Case& c) {
         c.geometry.kernel_size[0] = 0;
         without_tables(in);
       },
       {"kernel_h", "at least 1", "got 0"}},
      {"window too large",
       [=](Arguments& in, Case& c) {
         c.geometry.kernel_size[0] = 9;
         without_tables(in);
       },
       {"must fit", "9 rows", "8 padded rows"}},
  };
  mistakes.insert(mistakes.end(), std::begin(more), std::end(more));
  return mistakes;
}

struct Operator {
  std::string name;  // complaints begin with it
  std::vector<Case> cases;
  std::vector<Case> large;
  std::function<Arguments(const Case&)> random;
  Function run;
  Function composite;   // the same in ATen operators
  Function definition;  // the truth, in float64
  Tolerances tolerances;
  // Whether strides, the wish for other gradients, or for none, change no bit. Not so where
  // LibTorch's products stand beside the kernels, or other kernels run without gradients.
  bool bitwise = true;
  std::optional<at::ScalarType> type_under_autocast = at::kBFloat16;  // none: not always the same
  std::vector<at::ScalarType> types_of_kernels = {at::kFloat, at::kBFloat16};
  std::vector<const char*> masked = {};  // the maps that are not read where the mask is false
  Case mistaken;                         // where the mistakes are made
  std::vector<Mistake> mistakes;
  // What stands behind the geometry in the schema, if anything. For registered operators only.
  std::function<c10::IValue(const Case&)> last_argument = {};
};

inline void PrintTo(const Operator& op, std::ostream* stream) { *stream << op.name; }

// check(case, arguments) for every case, which then has a name in messages.
template <typename Check>
void each_case(const Operator& op, const std::vector<Case>& cases, const Check& check) {
  for (const Case& c : cases) {
    SCOPED_TRACE(op.name + ", " + c.what);
    torch::manual_seed(1);
    check(c, op.random(c));
  }
}
template <typename Check>
void each_case(const Operator& op, const Check& check) {
  each_case(op, op.cases, check);
}

// An output and the gradients of what has one, by name.
struct Results {
  at::Tensor output;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

// In leaves of the given dtype. upstream(output) is the gradient that comes back.
inline Results with_gradients(
    const Function& function, const Arguments& inputs, const Case& c, at::ScalarType type,
    const std::function<at::Tensor(const at::Tensor&)>& upstream = [](const at::Tensor& output) {
      return random_like(output);
    }) {
  const Arguments in = inputs.as(type);
  const at::Tensor output = function(in, c);
  output.backward(upstream(output));
  Results results{output.detach(), {}};
  for (const Argument& argument : in.differentiable()) {
    results.gradients.emplace_back(argument.name, argument.tensor.grad());
  }
  return results;
}

// Gradients of a random sum of the gradients, with respect to everything, the upstream one too.
inline Results second_gradients(const Function& function, const Arguments& inputs, const Case& c,
                                at::ScalarType type) {
  const Arguments in = inputs.as(type);
  const at::Tensor output = function(in, c);
  std::vector<Argument> wanted = in.differentiable();
  wanted.push_back({"upstream", Role::kMap, random_like(output).requires_grad_()});
  const auto first = torch::autograd::grad({output}, in.given(), {wanted.back().tensor},
                                           std::nullopt, /*create_graph=*/true);
  at::Tensor sum = torch::zeros({}, type);
  for (size_t i = 0; i < first.size(); ++i) {
    sum = sum + (first[i] * random_like(first[i], 11 + i)).sum();
  }
  const auto second =
      torch::autograd::grad({sum}, Arguments{wanted}.given(), {}, std::nullopt, false,
                            /*allow_unused=*/true);
  Results results;
  for (size_t i = 0; i < second.size(); ++i)
    results.gradients.emplace_back(wanted[i].name, second[i]);
  return results;
}

inline void expect_near(const Results& actual, const Results& expected, double output,
                        double gradient) {
  EXPECT_TRUE(near(actual.output, expected.output, output, 1)) << "output";
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    EXPECT_TRUE(near(actual.gradients[i].second, expected.gradients[i].second, gradient, 1))
        << "gradient of " << actual.gradients[i].first;
  }
}
inline void expect_near(const Results& actual, const Results& expected, double tolerance) {
  expect_near(actual, expected, tolerance, tolerance);
}
inline void expect_same(const Results& actual, const Results& expected) {
  EXPECT_TRUE(same(actual.output, expected.output)) << "output";
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    EXPECT_TRUE(same(actual.gradients[i].second, expected.gradients[i].second))
        << "gradient of " << actual.gradients[i].first;
  }
}
inline void expect_finite(const Results& results) {
  EXPECT_TRUE(results.output.isfinite().all().item<bool>()) << "output";
  for (const auto& [name, gradient] : results.gradients) {
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << "gradient of " << name;
  }
}

// Attention of one query by its definition, per head: q [heads, dim], k and v [n, heads, dim], bias
// [n, heads] if there is one. 0 where n is 0.
inline at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const OptionalTensor& bias) {
  if (k.size(0) == 0) return torch::zeros_like(q);
  const at::Tensor scores = (q * k).sum(-1);
  return ((bias.has_value() ? scores + *bias : scores).softmax(0).unsqueeze(-1) * v).sum(0);
}

// The checks of every operator, and those of operators that are registered with the dispatcher.
class OperatorSweep : public ::testing::TestWithParam<Operator> {};
class RegisteredSweep : public ::testing::TestWithParam<Operator> {};

}  // namespace qna::ops::testing
