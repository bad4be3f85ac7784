// The sweep that every operator passes: each implementation the CPU has is forced in turn and
// compared with the reference. What is the same for all operators is here; what differs is a
// problem, and a struct that lists problems. A new operator is one line:
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, Operator, ItsRows);
//
// A problem is one call with its inputs. It has
//   Results run(int workers = 1) const;  by the implementation that is forced, through the public
//                                        entry point; its parts say how near they must be
//   std::string text() const;            dtype, shape and options
// and, if it wants to,
//   int64_t count() const, alone(i);     how many images or rows, and one of them as a problem
//   plain(), bool is_plain() const;      the problem whose answer by the reference is expected:
//                                        not in 16 bits, no packed weights. Where that is another
//                                        one, the reference's own answer is compared too
//
// ItsRows has, each calling visit(what, problem) for every row,
//   static void near(const auto& visit);  to be compared with the reference
//   static void bits(const auto& visit);  which shall give the same bits for any number of workers,
//                                         in every run, and for each image or row alone
//   static Problem nothing();             without an image or row
// visit may get the numbers of workers as well. Threads cost time: by default it is 1 for `near`,
// and 1, 1 again, 2, 3 and 8 for `bits`.
#pragma once

#include <string>
#include <vector>

#include "qna/kernels/buffers_testonly.h"
#include "qna/kernels/implementation.h"
#include "qna/kernels/window_shapes_testonly.h"

namespace qna::kernels::testing {

template <typename T>
const char* dtype_name() {
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, BFloat16>) return "bfloat16";
  if constexpr (std::is_same_v<T, Float16>) return "float16";
  if constexpr (std::is_same_v<T, double>) return "float64";
}

// Ends with no implementation forced, also when a test fails.
struct ForcedImplementation {
  explicit ForcedImplementation(std::string_view name) { force_implementation(name); }
  ~ForcedImplementation() { force_implementation(""); }
};

// All that this CPU can run, the reference first.
inline std::vector<std::string> supported_implementations() {
  std::vector<std::string> names;
  for (const Implementation& implementation : implementations()) {
    if (implementation.supported) names.push_back(implementation.name);
  }
  return names;
}

// entry() runs the implementation that is forced: just before, another one was the last.
template <typename Entry>
void expect_forced_runs(const std::string& name, const Entry& entry) {
  {
    ForcedImplementation other(name == "reference" ? supported_implementations().back()
                                                   : "reference");
    float a = 1, b = 1, c = 0;
    ThreadRuntime runtime;
    product({1, 1, 1, &a, &b, &c}, runtime);
    ASSERT_NE(last_implementation(), name);
  }
  ForcedImplementation forced(name);
  EXPECT_EQ(chosen_implementation().name, name);
  entry();
  EXPECT_EQ(last_implementation(), name);
}

// Calls call() with one implementation after the other forced; failures name it.
template <typename Call>
void for_each_implementation(const Call& call, bool reference_too = true) {
  for (const std::string& name : supported_implementations()) {
    if (name == "reference" && !reference_too) continue;
    SCOPED_TRACE(name);
    ForcedImplementation forced(name);
    call();
    EXPECT_EQ(last_implementation(), name) << "ran, although another one was forced";
  }
}

// All but the reference.
template <typename Call>
void for_each_simd(const Call& call) {
  for_each_implementation(call, false);
}

template <typename Problem>
Results by_reference(const Problem& problem) {
  ForcedImplementation forced("reference");
  Results results = problem.run();
  EXPECT_EQ(last_implementation(), "reference") << "ran in the place of the reference";
  return results;
}

// Every implementation against the reference. The first number of workers counts; the others must
// give the same bits. Returns what the reference says.
template <typename Problem>
Results compare_all(const Problem& problem, std::initializer_list<int> workers = {1}) {
  bool is_plain = true;
  if constexpr (requires { problem.plain(); }) is_plain = problem.is_plain();
  Results expected = [&] {
    if constexpr (requires { problem.plain(); }) {
      if (!is_plain) return by_reference(problem.plain());
    }
    return by_reference(problem);
  }();
  SCOPED_TRACE(problem.text());
  for_each_implementation(
      [&] {
        const Results first = problem.run(*workers.begin());
        expect_near(first, expected);
        for (const int* count = workers.begin() + 1; count < workers.end(); ++count) {
          EXPECT_TRUE(same_bits(problem.run(*count), first)) << *count << " workers";
        }
      },
      !is_plain);
  return expected;
}

// An image or row does not depend on the others, nor on its place among them. Of hundreds of rows
// some are asked.
template <typename Problem>
void expect_same_bits_alone(const Problem& problem) {
  SCOPED_TRACE(problem.text());
  for_each_simd([&] {
    const Results by_one = problem.run(1), by_two = problem.run(2);
    const int64_t count = problem.count();
    for (int64_t i = 0; i < count; i += 1 + count / 32) {
      for (const Part& part : problem.alone(i).run().parts) {
        SCOPED_TRACE(fmt::format("{} of image or row {}", part.name, i));
        EXPECT_TRUE(same_bits(part.cells, part_of(by_one[part.name], i, count)));
        EXPECT_TRUE(same_bits(part.cells, part_of(by_two[part.name], i, count))) << "2 workers";
      }
      if (::testing::Test::HasFailure()) return;
    }
  });
}

inline void expect_zero(const Results& results) {
  for (const Part& part : results.parts) {
    EXPECT_TRUE(same_bits(part.cells, std::vector<double>(part.cells.size()))) << part.name;
  }
}

template <typename Rows>
class Operator : public ::testing::Test {};
TYPED_TEST_SUITE_P(Operator);

TYPED_TEST_P(Operator, NearTheReference) {
  TypeParam::near(
      [&](const std::string& what, const auto& problem, std::initializer_list<int> workers = {1}) {
        if (this->HasFailure()) return;  // one report is enough
        SCOPED_TRACE(what);
        compare_all(problem, workers);
      });
}

TYPED_TEST_P(Operator, SameBitsForAnyWorkersAndAlone) {
  TypeParam::bits([&](const std::string& what, const auto& problem,
                      std::initializer_list<int> workers = {1, 1, 2, 3, 8}) {
    if (this->HasFailure()) return;
    SCOPED_TRACE(what);
    compare_all(problem, workers);
    if constexpr (requires { problem.alone(0); }) expect_same_bits_alone(problem);
  });
}

TYPED_TEST_P(Operator, NothingToDo) {
  for_each_implementation([&] {
    for (const int workers : {1, 2}) {
      const Results results = TypeParam::nothing().run(workers);
      EXPECT_TRUE(results.cells().empty());
      expect_zero(results);  // gradients of weights
    }
  });
}

REGISTER_TYPED_TEST_SUITE_P(Operator, NearTheReference, SameBitsForAnyWorkersAndAlone, NothingToDo);

// For operators with a mask:
//   static void masked(const auto& visit);  problems with a mask
//   void Problem::poison(n, value);         gives what masked pixel n holds another value
template <typename Rows>
class MaskedOperator : public ::testing::Test {};
TYPED_TEST_SUITE_P(MaskedOperator);

// Not in a single bit.
TYPED_TEST_P(MaskedOperator, MaskedPixelsDoNotMatter) {
  TypeParam::masked([&](const std::string& what, const auto& clean) {
    for (const float poison : {kInfinity, -kInfinity, kNan, 3e38f, -3e38f}) {
      SCOPED_TRACE(fmt::format("{} {} {}", what, clean.text(), poison));
      auto problem = clean;
      for (int64_t n = 0; n < static_cast<int64_t>(problem.mask.size()); ++n) {
        if (problem.mask[n] == 0) problem.poison(n, poison);
      }
      for_each_implementation([&] { EXPECT_TRUE(same_bits(problem.run(), clean.run())); });
    }
  });
}

TYPED_TEST_P(MaskedOperator, WhateverIsNotZeroTakesPart) {
  TypeParam::masked([&](const std::string& what, const auto& problem) {
    SCOPED_TRACE(fmt::format("{} {}", what, problem.text()));
    auto ones = problem, others = problem;
    for (uint8_t& cell : ones.mask) cell = cell != 0 ? 1 : 0;
    for (uint8_t& cell : others.mask) cell = cell != 0 ? 0x80 : 0;
    for_each_implementation([&] { EXPECT_TRUE(same_bits(ones.run(), others.run())); });
  });
}

REGISTER_TYPED_TEST_SUITE_P(MaskedOperator, MaskedPixelsDoNotMatter, WhateverIsNotZeroTakesPart);

// Working memory does not grow with the width of a map. make(shape) gives the problem.
template <typename Make>
void expect_scratch_bounded(const Make& make) {
  const auto bytes = [&](int64_t width) {
    return make(Map(1, 3, width, 8, 8, 2).padded()).run(2).scratch_bytes;
  };
  for_each_simd([&] { EXPECT_LE(bytes(32000), bytes(8000) * 5 / 4); });
}

// A gradient against central differences of `loss` by the cells. The error is of order step^2, and
// that of a loss divided by the step.
template <typename Cell, typename Loss>
void expect_gradient(const char* name, const std::vector<double>& gradient,
                     const std::vector<Cell*>& cells, const Loss& loss, Cell step,
                     const Tolerance& tolerance) {
  std::vector<double> differences;
  for (Cell* cell : cells) {
    const Cell before = *cell;
    *cell = before + step;
    const double up = *cell, above = loss();
    *cell = before - step;
    const double down = *cell, below = loss();
    *cell = before;
    differences.push_back((above - below) / (up - down));
  }
  EXPECT_TRUE(near(gradient, differences, tolerance)) << name;
}

template <typename Cell>
std::vector<Cell*> pointers(std::vector<Cell>& cells) {
  std::vector<Cell*> all;
  for (Cell& cell : cells) all.push_back(&cell);
  return all;
}

// The gradients of that name by each of the inputs.
template <typename Cell>
using NamedInputs = std::initializer_list<std::pair<const char*, std::vector<Cell>*>>;
template <typename Cell, typename Loss>
void expect_gradients(const Results& gradients, NamedInputs<Cell> inputs, const Loss& loss,
                      Cell step, const Tolerance& tolerance) {
  for (const auto& [name, cells] : inputs) {
    expect_gradient(name, gradients[name], pointers(*cells), loss, step, tolerance);
  }
}

inline double dot(const std::vector<double>& a, const auto& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

}  // namespace qna::kernels::testing
