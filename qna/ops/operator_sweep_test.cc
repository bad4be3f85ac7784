// What every operator must do, whatever it computes. Its row says which operator that is.
#include "qna/ops/operator_sweep_testonly.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "qna/ops/registration.h"

namespace qna::ops::testing {
namespace {

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- numbers ----

// The composite form and the operator in float64, both in float32 by every implementation, with
// gradients and without.
TEST_P(OperatorSweep, EveryWayIsTheDefinition) {
  const Operator& op = GetParam();
  const Tolerances& t = op.tolerances;
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
    expect_near(with_gradients(op.composite, inputs, c, at::kDouble), expected, t.exact);
    expect_near(with_gradients(op.run, inputs, c, at::kDouble), expected, t.exact);
    expect_near(with_gradients(op.composite, inputs, c, at::kFloat), expected, t.output,
                t.gradient);
    for (const std::string& name : supported_implementations()) {
      SCOPED_TRACE(name);
      const ForcedImplementation forced(name);
      const Results actual = with_gradients(op.run, inputs, c, at::kFloat);
      EXPECT_EQ(kernels::last_implementation(), name);
      expect_near(actual, expected, t.output, t.gradient);
      const torch::NoGradGuard no_grad;
      const at::Tensor alone = op.run(inputs.as(at::kFloat), c);
      EXPECT_EQ(kernels::last_implementation(), name);
      EXPECT_TRUE(near(alone, expected.output, t.output, 1));
      if (op.bitwise) {
        EXPECT_TRUE(same(alone, actual.output));
      }
    }
  });
}

TEST_P(OperatorSweep, LargerMaps) {
  const Operator& op = GetParam();
  each_case(op, op.large, [&](const Case& c, const Arguments& inputs) {
    expect_near(with_gradients(op.run, inputs, c, at::kFloat),
                with_gradients(op.composite, inputs, c, at::kDouble), op.tolerances.output,
                op.tolerances.gradient);
  });
}

// Central differences along random directions in float64: step^2 and 1e-16 / step are both 1e-10.
TEST_P(OperatorSweep, GradientsAgainstDifferences) {
  constexpr double kStep = 1e-5;
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    if (!c.smooth()) return;
    const Results results = with_gradients(op.run, inputs, c, at::kDouble);
    const at::Tensor upstream = random_like(results.output);
    const torch::NoGradGuard no_grad;
    const auto loss = [&] { return (op.run(inputs, c) * upstream).sum().item<double>(); };
    for (size_t i = 0; i < results.gradients.size(); ++i) {
      const auto& [name, gradient] = results.gradients[i];
      at::Tensor input = inputs[name];
      for (uint64_t seed = 0; seed < 12; ++seed) {
        const at::Tensor direction = random_like(input, 100 + seed);
        input.add_(direction, kStep);
        const double above = loss();
        input.sub_(direction, 2 * kStep);
        const double below = loss();
        input.add_(direction, kStep);
        const double slope = (gradient * direction).sum().item<double>();
        EXPECT_NEAR((above - below) / (2 * kStep), slope, 1e-7 * std::max(1.0, std::abs(slope)))
            << "gradient of " << name;
      }
    }
  });
}

TEST_P(OperatorSweep, DoubleBackward) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const Results expected = second_gradients(op.composite, inputs, c, at::kDouble);
    expect_near(second_gradients(op.run, inputs, c, at::kDouble), expected, op.tolerances.exact);
    expect_near(second_gradients(op.run, inputs, c, at::kFloat), expected, op.tolerances.second);
  });
}

// Arguments that are one tensor, or computed from each other: with and without create_graph the
// same gradients.
TEST_P(OperatorSweep, CreateGraphWithDependentArguments) {
  const Operator& op = GetParam();
  each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
    const Arguments in = inputs.as(at::kFloat, false);
    const at::Tensor x = in.given()[0].requires_grad_();
    bool first = true;
    const Arguments dependent = in.each([&](const Argument& argument) -> at::Tensor {
      if (!argument.wants_gradient() || argument.tensor.is_same(x)) return argument.tensor;
      if (argument.tensor.sizes() != x.sizes()) return argument.tensor * (1 + x.mean());
      return std::exchange(first, false) ? x : x * 2;
    });
    const auto gradient = [&](bool create_graph) {
      const at::Tensor y = op.run(dependent, c);
      return torch::autograd::grad({y}, {x}, {random_like(y)}, /*retain_graph=*/true,
                                   create_graph)[0];
    };
    EXPECT_LT((gradient(true) - gradient(false)).abs().max().item<double>(), 1e-5);
  });
}

// From the rounded inputs; the arithmetic between the roundings is float32.
TEST_P(OperatorSweep, HalfPrecision) {
  const Operator& op = GetParam();
  const Tolerances& t = op.tolerances;
  for (const auto& [type, rounding] :
       {std::pair(at::kBFloat16, 0x1p-8), std::pair(at::kHalf, 0x1p-11)}) {
    SCOPED_TRACE(c10::toString(type));
    each_case(op, [&, type = type, rounding = rounding](const Case& c, const Arguments& inputs) {
      if (!c.smooth()) return;
      const Arguments rounded = inputs.as(type, false);
      const Results expected =
          with_gradients(op.definition, rounded.as(at::kDouble, false), c, at::kDouble);
      const Results actual = with_gradients(op.run, rounded, c, type);
      EXPECT_EQ(actual.output.scalar_type(), type);
      for (const auto& [name, gradient] : actual.gradients) {
        EXPECT_EQ(gradient.scalar_type(), type) << "gradient of " << name;
      }
      expect_near(actual, expected, t.half_output * rounding, t.half_gradient * rounding);
      const at::Tensor alone = op.run(rounded, c);
      EXPECT_EQ(alone.scalar_type(), type);
      EXPECT_TRUE(near(alone, expected.output, t.half_inference * rounding, 1));
    });
  }
}

TEST_P(OperatorSweep, Autocast) {
  const Operator& op = GetParam();
  const Tolerances& t = op.tolerances;
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    if (!c.smooth()) return;
    const Results expected = with_gradients(op.definition, inputs, c, at::kDouble);
    const at::Tensor single = op.run(inputs.as(at::kFloat, false), c);
    const Autocast autocast(at::kBFloat16);
    const Results actual = with_gradients(op.run, inputs, c, at::kFloat);
    const at::Tensor alone = op.run(inputs.as(at::kFloat, false), c);
    expect_near(actual, expected, t.autocast_output, t.autocast_gradient);
    EXPECT_TRUE(near(alone, expected.output, t.autocast_output, 1));
    for (const at::Tensor& output : {actual.output, alone}) {
      EXPECT_EQ(output.scalar_type(), op.type_under_autocast.value_or(output.scalar_type()));
      // The precision is lower, whatever the dtype.
      EXPECT_TRUE(output.numel() == 0 || !same(output.to(at::kFloat), single));
    }
    for (const auto& [name, gradient] : actual.gradients) {
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << "gradient of " << name;
    }
  });
}

// What stands where the mask is false does not matter, to values and gradients, and gets none.
TEST_P(OperatorSweep, MaskedPoison) {
  const Operator& op = GetParam();
  if (op.masked.empty()) return;
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    if (!c.parts.mask) return;
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const double poison : {1e6, kNotANumber, kInfinity}) {
        SCOPED_TRACE(::testing::Message() << c10::toString(type) << ", " << poison);
        const Arguments poisoned = inputs.as(at::kDouble, false);
        const at::Tensor absent = inputs["mask"].logical_not();
        for (const char* name : op.masked) at::Tensor(poisoned[name]).index_put_({absent}, poison);
        for (const Function& way : {op.composite, op.definition}) {
          expect_near(with_gradients(way, poisoned, c, type), with_gradients(way, inputs, c, type),
                      1e-12);
        }
        const Results expected = with_gradients(op.run, inputs, c, type);
        const Results actual = with_gradients(op.run, poisoned, c, type);
        expect_same(actual, expected);
        for (const auto& [name, gradient] : actual.gradients) {
          if (std::find(op.masked.begin(), op.masked.end(), name) == op.masked.end()) continue;
          EXPECT_EQ(gradient.index({absent}).abs().sum().item<double>(), 0) << name;
        }
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(near(op.run(poisoned.as(type), c), expected.output, op.tolerances.output, 1));
      }
  });
}

// ---- calls ----

TEST_P(OperatorSweep, GradientsOnlyWhereWanted) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const Results all = with_gradients(op.run, inputs, c, at::kFloat);
    for (size_t wanted = 0; wanted < all.gradients.size(); ++wanted) {
      const auto& [name, expected] = all.gradients[wanted];
      const Arguments in = inputs.as(at::kFloat, false);
      in[name].requires_grad_();
      const at::Tensor y = op.run(in, c);
      ASSERT_TRUE(y.requires_grad()) << name;
      y.backward(random_like(y));
      for (const Argument& argument : in.differentiable()) {
        EXPECT_EQ(argument.tensor.grad().defined(), argument.name == name)
            << argument.name << ", wanted: " << name;
      }
      EXPECT_TRUE(op.bitwise ? same(in[name].grad(), expected)
                             : bool(near(in[name].grad(), expected, 1e-6, 1)))
          << name;
    }
    EXPECT_FALSE(op.run(inputs.as(at::kFloat, false), c).requires_grad());
  });
}

TEST_P(OperatorSweep, InferenceMode) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const Arguments in = inputs.as(at::kFloat);
    const at::Tensor expected = op.run(in, c).detach();
    const c10::InferenceMode guard;
    const at::Tensor y = op.run(in, c);
    EXPECT_TRUE(y.is_inference());
    EXPECT_TRUE(op.bitwise ? same(y, expected) : bool(near(y, expected, 1e-5, 1)));
  });
}

// The same numbers, the two dimensions swapped in memory, if there are two such.
at::Tensor swapped(const at::Tensor& t, int64_t a, int64_t b) {
  if (std::max({a, b, -a - 1, -b - 1}) >= t.dim()) return t;
  return t.transpose(a, b).contiguous().transpose(a, b);
}
at::Tensor heads_fast(const at::Tensor& t) { return swapped(t, -1, -2); }
at::Tensor within_wider(const at::Tensor& t) {
  const int64_t dim = std::max<int64_t>(0, t.dim() - 2);
  return torch::stack({torch::full_like(t, 99), t}, dim).select(dim, 1);
}
at::Tensor every_second(const at::Tensor& t) {
  return torch::stack({t, torch::full_like(t, 99)}, -1).select(-1, 0);
}
at::Tensor channels_first(const at::Tensor& t) {
  if (t.dim() < 4) return t;
  return t.movedim({1, 2}, {-2, -1}).contiguous().movedim({-2, -1}, {1, 2});
}

// The same numbers behind other strides, of all arguments and of the gradient that comes back.
TEST_P(OperatorSweep, AnyStrides) {
  using Change = at::Tensor (*)(const at::Tensor&);
  const std::pair<const char*, Change> changes[] = {
      {"heads fast", heads_fast},
      {"within wider", within_wider},
      {"heads fast, within wider", [](const at::Tensor& t) { return within_wider(heads_fast(t)); }},
      {"rows and columns swapped", [](const at::Tensor& t) { return swapped(t, 1, 2); }},
      {"images and columns swapped", [](const at::Tensor& t) { return swapped(t, 0, 2); }},
      {"first and last swapped", [](const at::Tensor& t) { return swapped(t, 0, -1); }},
      {"channels first", channels_first},
      {"every second", every_second}};
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const auto expect_agreement = [&](const Results& actual, const Results& expected) {
      // Matrix products may round otherwise for other strides.
      op.bitwise ? expect_same(actual, expected) : expect_near(actual, expected, 1e-6, 1e-5);
    };
    const Results expected = with_gradients(op.run, inputs, c, at::kFloat);
    const at::Tensor alone = op.run(inputs.as(at::kFloat, false), c);
    for (const auto& [what, change] : changes) {
      SCOPED_TRACE(what);
      const Function changed = [&, change = change](const Arguments& in, const Case& same_case) {
        return op.run(in.each([&](const Argument& a) { return change(a.tensor); }), same_case);
      };
      expect_agreement(with_gradients(changed, inputs, c, at::kFloat,
                                      [&, change = change](const at::Tensor& y) {
                                        return change(random_like(y));
                                      }),
                       expected);
      EXPECT_TRUE(same(changed(inputs.as(at::kFloat, false), c), alone));
    }
    SCOPED_TRACE("expanded gradient");
    const auto ones = [](const at::Tensor& y) { return torch::ones_like(y); };
    const auto expanded = [](const at::Tensor& y) { return torch::ones({}).expand(y.sizes()); };
    expect_agreement(with_gradients(op.run, inputs, c, at::kFloat, expanded),
                     with_gradients(op.run, inputs, c, at::kFloat, ones));
  });
}

TEST_P(OperatorSweep, SameBitsForAnyNumberOfThreads) {
  const Operator& op = GetParam();
  each_case(op, op.large, [&](const Case& c, const Arguments& inputs) {
    const auto run = [&](int threads, at::ScalarType type) {
      const ThreadCount count(threads);
      Results results = with_gradients(op.run, inputs, c, type);
      results.gradients.emplace_back("nothing", op.run(inputs.as(type, false), c));
      return results;
    };
    for (const at::ScalarType type : op.types_of_kernels) {
      const Results one = run(1, type);
      for (const int threads : {2, 3, 1}) {
        SCOPED_TRACE(::testing::Message() << c10::toString(type) << ", " << threads << " threads");
        expect_same(run(threads, type), one);
      }
    }
  });
}

Arguments on_meta(const Arguments& in) {
  return in.each([](const Argument& argument) { return argument.tensor.to(at::kMeta); });
}

TEST_P(OperatorSweep, WrongArguments) {
  const Operator& op = GetParam();
  for (const Mistake& mistake : op.mistakes)
    for (const bool requires_grad : {false, true})
      for (const bool meta : {false, true}) {
        if (meta && mistake.what == std::string("device")) continue;
        SCOPED_TRACE(op.name + ", " + mistake.what + (meta ? ", meta" : ""));
        Case c = op.mistaken;
        Arguments in = op.random(c).as(at::kFloat, requires_grad);
        mistake.make(in, c);
        if (meta) in = on_meta(in);
        const std::string said = complaint([&] { op.run(in, c); });
        EXPECT_TRUE(said.starts_with(op.name + ": ")) << said;
        expect_words(said, mistake.words);
      }
}

// ---- operators that the dispatcher knows ----

// The arguments as TorchScript and Python give them; what is absent is None, or an undefined
// tensor.
torch::jit::Stack boxed(const Operator& op, const Arguments& in, const Case& c, bool none = true) {
  torch::jit::Stack stack;
  for (const Argument& argument : in.list) {
    stack.push_back(none && !argument.tensor.defined() ? c10::IValue()
                                                       : c10::IValue(argument.tensor));
  }
  const auto push = [&](const auto& numbers) {
    stack.emplace_back(std::vector<int64_t>(numbers.begin(), numbers.end()));
  };
  push(c.geometry.kernel_size);
  push(c.geometry.stride);
  push(c.geometry.padding);
  push(c.geometry.dilation);
  if (op.last_argument) stack.push_back(op.last_argument(c));
  return stack;
}

at::Tensor call_by_name(const Operator& op, torch::jit::Stack stack) {
  register_operators();
  register_operators();  // a second time does nothing
  c10::Dispatcher::singleton().findSchemaOrThrow(op.name.c_str(), "").callBoxed(&stack);
  EXPECT_EQ(stack.size(), 1u);
  return stack.at(0).toTensor();
}

TEST_P(RegisteredSweep, ByName) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    for (const bool none : {false, true}) {
      SCOPED_TRACE(none ? "none" : "undefined");
      const Function by_name = [&](const Arguments& in, const Case& same_case) {
        return call_by_name(op, boxed(op, in, same_case, none));
      };
      expect_same(with_gradients(by_name, inputs, c, at::kFloat),
                  with_gradients(op.run, inputs, c, at::kFloat));
      const Arguments in = inputs.as(at::kFloat, false);
      EXPECT_TRUE(same(by_name(in, c), op.run(in, c)));
    }
  });
}

// Lists of the wrong length can only come through the dispatcher.
TEST_P(RegisteredSweep, WrongListLengths) {
  const Operator& op = GetParam();
  const auto expect_refusal = [&](size_t place, const std::vector<int64_t>& list,
                                  std::initializer_list<const char*> words) {
    each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
      torch::jit::Stack stack = boxed(op, inputs.as(at::kFloat), c);
      stack[inputs.list.size() + place] = list;
      expect_complaint([&] { call_by_name(op, stack); }, words);
    });
  };
  expect_refusal(0, {3, 3, 3}, {"kernel_size", "2 numbers", "[3, 3, 3]"});
  expect_refusal(1, {2}, {"stride", "2 numbers", "[2]"});
  expect_refusal(2, {1, 1}, {"padding", "4 numbers", "[1, 1]"});
  expect_refusal(3, {}, {"dilation", "2 numbers", "[]"});
}

TEST_P(RegisteredSweep, Uint8MaskIsABoolMask) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    if (!c.parts.mask) return;
    Arguments in = inputs.as(at::kFloat);
    const at::Tensor expected = op.run(in, c);
    in["mask"] = in["mask"].to(at::kByte) * 200;
    EXPECT_TRUE(same(op.run(in, c), expected));
  });
}

// Small tables may stay as they are beside 16-bit maps, and then their gradients do too.
TEST_P(RegisteredSweep, TablesKeepTheirDtype) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    // The tables have these two in turn.
    for (auto [type, next] :
         {std::pair(at::kFloat, at::kFloat), std::pair(at::kDouble, at::kDouble),
          std::pair(at::kFloat, at::kDouble)}) {
      const Arguments in = inputs.each([&](const Argument& argument) {
        if (argument.role == Role::kMask) return argument.tensor;
        if (argument.role == Role::kMap) return leaf(argument.tensor, at::kBFloat16);
        std::swap(type, next);
        return leaf(argument.tensor, next);
      });
      const at::Tensor y = op.run(in, c);
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      y.backward(random_like(y));
      for (const Argument& argument : in.differentiable()) {
        EXPECT_EQ(argument.tensor.grad().scalar_type(), argument.tensor.scalar_type())
            << argument.name;
      }
    }
  });
}

TEST_P(RegisteredSweep, MetaHasTheShapeAndStrides) {
  const Operator& op = GetParam();
  each_case(op, [&](const Case& c, const Arguments& inputs) {
    const Arguments plain = inputs.as(at::kFloat, false);
    for (const Arguments& in :
         {plain, plain.each([](const Argument& a) { return heads_fast(a.tensor); })}) {
      const at::Tensor expected = op.run(in, c);
      const at::Tensor y = op.run(on_meta(in), c);
      EXPECT_TRUE(y.is_meta());
      EXPECT_EQ(y.sizes(), expected.sizes());
      EXPECT_EQ(y.strides(), expected.strides());
      EXPECT_EQ(y.scalar_type(), expected.scalar_type());
    }
  });
}

// Terabytes of output: only a call that allocates nothing returns.
TEST_P(RegisteredSweep, MetaAllocatesNothing) {
  const Operator& op = GetParam();
  const auto enlarged = [](at::IntArrayRef sizes) {
    std::vector<int64_t> large = {512, 16384, 16384};
    large.insert(large.end(), sizes.begin() + 3, sizes.end());
    return large;
  };
  each_case(op, {op.cases[0]}, [&](const Case& c, const Arguments& inputs) {
    const Arguments small = on_meta(inputs.as(at::kFloat, false));
    const Arguments large = small.each([&](const Argument& argument) {
      const at::Tensor& t = argument.tensor;
      return argument.role == Role::kMap ? torch::empty(enlarged(t.sizes()), t.options()) : t;
    });
    const at::Tensor y = op.run(large, c);
    EXPECT_EQ(y.sizes(), at::IntArrayRef(enlarged(op.run(small, c).sizes())));
    EXPECT_EQ(y.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get(), nullptr);
  });
}

}  // namespace
}  // namespace qna::ops::testing
