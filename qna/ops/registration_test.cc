#include "qna/ops/registration.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "qna/base/error.h"

namespace qna::ops {
namespace {

// What a process does that has loaded the Python package first.
[[noreturn]] void register_beside_another() {
  torch::Library other(torch::Library::DEF, "qna", std::nullopt, __FILE__, __LINE__);
  other.def("qna_layer(Tensor x) -> Tensor");
  try {
    register_operators();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(3);
  }
  std::exit(0);
}

TEST(RegistrationDeathTest, AnotherLibraryHasTheNames) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process where nothing is registered yet
  EXPECT_EXIT(register_beside_another(), ::testing::ExitedWithCode(3), "are there already");
}

}  // namespace
}  // namespace qna::ops
