// The list of implementations, the choice among them, and proof of which one ran.
#include "qna/kernels/implementation.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <set>

#include "qna/kernels/qna_layer_problem_testonly.h"
#include "qna/kernels/window_problem_testonly.h"

namespace qna::kernels::testing {
namespace {

std::string complaint_about(std::string_view name) {
  try {
    ForcedImplementation forced(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Implementation, List) {
  const auto list = implementations();
  ASSERT_GE(list.size(), 2u);
  EXPECT_STREQ(list.front().name, "reference");
  EXPECT_TRUE(list.front().supported);
  std::set<std::string> names;
  for (const Implementation& implementation : list) {
    EXPECT_TRUE(names.insert(implementation.name).second) << implementation.name << " twice";
    EXPECT_NE(std::string(implementation.description), "");
    EXPECT_GE(implementation.lanes, 1);
    const auto complete = [](const auto& table) {
      return table.forward != nullptr && table.backward != nullptr && table.qna_layer != nullptr &&
             table.pack_qna_layer != nullptr && table.qna_layer_backward != nullptr &&
             table.sasa != nullptr && table.sasa_backward != nullptr;
    };
    EXPECT_TRUE(complete(implementation.float32));
    EXPECT_TRUE(complete(implementation.bfloat16));
    EXPECT_TRUE(complete(implementation.float16));
    EXPECT_TRUE(implementation.pack_matrix != nullptr && implementation.dense != nullptr &&
                implementation.mlp != nullptr && implementation.product != nullptr &&
                implementation.window_self_attention != nullptr);
  }
}

// Otherwise the other tests would compare nothing with the reference, and pass.
TEST(Implementation, AtLeastOneWithVectors) {
  EXPECT_GE(supported_implementations().size(), 2u);
  EXPECT_TRUE(std::any_of(implementations().begin(), implementations().end(),
                          [](const Implementation& implementation) {
                            return implementation.supported && implementation.lanes >= 4;
                          }));
}

// One multiplication: y = 2 x.
PackedWeights pack_two(Runtime& runtime) {
  const float two = 2;
  return pack_matrix({.inner = 1,
                      .columns = 1,
                      .weight = &two,
                      .inner_stride = 1,
                      .column_stride = 1,
                      .bias = nullptr},
                     runtime);
}

// Every entry point runs what is forced.
template <typename T>
class ForcedOne : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(ForcedOne, StorageTypes);

TYPED_TEST(ForcedOne, Runs) {
  const WindowShape shape = Map(1, 4, 5, 2, 3, 2);
  const WindowProblem<TypeParam> window(shape, {});
  const QnALayerProblem<TypeParam> layer(shape, {});
  ThreadRuntime runtime;
  for (const std::string& name : supported_implementations()) {
    SCOPED_TRACE(name);
    expect_forced_runs(name, [&] { window.forward(); });
    expect_forced_runs(name, [&] { window.backward(); });
    expect_forced_runs(name, [&] { layer.run(); });
    expect_forced_runs(name, [&] {
      float a = 2, b = 3, c = 0;
      product({1, 1, 1, &a, &b, &c}, runtime);
      EXPECT_EQ(c, 6);
    });
    expect_forced_runs(name, [&] { EXPECT_EQ(pack_two(runtime).owner, &chosen_implementation()); });
    expect_forced_runs(name, [&] {
      EXPECT_EQ(pack_qna_layer(layer.args(), runtime).owner, &chosen_implementation());
    });
  }
}

// The same for those that use packed weights, which the same one packed before.
TEST(Implementation, ForcedOneRunsOnPackedWeights) {
  ThreadRuntime runtime;
  const QnALayerProblem<float> layer(Map(1, 4, 5), {});
  for (const std::string& name : supported_implementations()) {
    SCOPED_TRACE(name);
    PackedWeights two, packed_qna_layer;
    {
      ForcedImplementation forced(name);
      two = pack_two(runtime);
      packed_qna_layer = pack_qna_layer(layer.args(), runtime);
    }
    float x = 3, y = 0;
    expect_forced_runs(name, [&] {
      dense({.rows = 1, .x = &x, .weights = &two, .y = &y}, runtime);
      EXPECT_EQ(y, 6);
    });
    expect_forced_runs(name, [&] {
      mlp({.rows = 1,
           .x = &x,
           .norm = {.wanted = false},
           .expand = &two,
           .activation = Activation::kRelu,
           .contract = &two,
           .y = &y},
          runtime);
      EXPECT_EQ(y, 3 + 12);
    });
    expect_forced_runs(name, [&] {
      const float qkv[] = {1, 2, 5};
      window_self_attention({.batch = 1,
                             .height = 1,
                             .width = 1,
                             .heads = 1,
                             .head_dim = 1,
                             .window_h = 1,
                             .window_w = 1,
                             .qkv = qkv,
                             .scale = 1,
                             .bias = nullptr,
                             .bias_h = 0,
                             .bias_w = 0,
                             .mask = nullptr,
                             .out = &y},
                            runtime);
      EXPECT_EQ(y, 5);
    });
    expect_forced_runs(name, [&] {
      layer.run(1, [&](QnALayerArgs<float>& args) { args.packed = &packed_qna_layer; });
    });
  }
}

// float64 has no fused kernel, and does not pretend to.
TEST(Implementation, DoubleRunsTheReference) {
  ForcedImplementation forced(supported_implementations().back());
  QnALayerProblem<double>(Map(1, 4, 5), {}).run();
  EXPECT_EQ(last_implementation(), "reference");
}

TEST(Implementation, ForcingIsTakenBack) {
  const std::string by_default = chosen_implementation().name;
  { ForcedImplementation forced("reference"); }
  EXPECT_EQ(chosen_implementation().name, by_default);
}

TEST(Implementation, UnknownOneIsAnErrorThatListsTheNames) {
  const std::string said = complaint_about("avx9000");
  EXPECT_NE(said.find("'avx9000'"), std::string::npos) << said;
  for (const Implementation& implementation : implementations()) {
    EXPECT_NE(said.find(implementation.name), std::string::npos) << said;
  }
}

TEST(Implementation, UnsupportedOneIsAnErrorThatNamesIt) {
  bool any = false;
  for (const Implementation& implementation : implementations()) {
    if (implementation.supported) continue;
    any = true;
    const std::string said = complaint_about(implementation.name);
    EXPECT_NE(said.find(implementation.name), std::string::npos) << said;
    EXPECT_NE(said.find("CPU"), std::string::npos) << said;
  }
  if (!any) GTEST_SKIP() << "this CPU supports all implementations";
}

// A failed force leaves the choice as it was.
TEST(Implementation, FailedForceChangesNothing) {
  ForcedImplementation forced("reference");
  EXPECT_THROW(force_implementation("nonsense"), Error);
  EXPECT_STREQ(chosen_implementation().name, "reference");
}

// Runs in a process of its own, started by the tests below, because QNA_KERNEL is read once.
TEST(ImplementationChild, DISABLED_SaysWhatIsChosen) {
  try {
    QnALayerProblem<float>(Map(1, 4, 5), {}).run();
    std::printf("ran <%s>\n", std::string(last_implementation()).c_str());
  } catch (const Error& error) {
    std::printf("error <%s>\n", error.what());
  }
}

// What the child above prints with QNA_KERNEL set to `value`.
std::string child_output(const std::string& value) {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return "no /proc/self/exe";
  // The child is no shard, also where its parent is one.
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX QNA_KERNEL='" +
                              value + "' '" + std::string(path.data()) +
                              "' --gtest_also_run_disabled_tests "
                              "--gtest_filter=ImplementationChild.* 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string output;
  std::array<char, 512> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  ::pclose(pipe);
  return output;
}

TEST(Implementation, EnvironmentVariableChooses) {
  for (const Implementation& implementation : implementations()) {
    const std::string output = child_output(implementation.name);
    const std::string expected = implementation.supported
                                     ? fmt::format("ran <{}>", implementation.name)
                                     : fmt::format("'{}'>", implementation.name);
    EXPECT_NE(output.find(expected), std::string::npos) << output;
  }
}

TEST(Implementation, EmptyEnvironmentVariableIsNone) {
  const std::string fastest = supported_implementations().back();
  const std::string output = child_output("");
  EXPECT_NE(output.find("ran <" + fastest + ">"), std::string::npos) << output;
}

TEST(Implementation, WrongEnvironmentVariableIsAnError) {
  const std::string output = child_output("nonsense");
  EXPECT_NE(output.find("error <QNA_KERNEL"), std::string::npos) << output;
  EXPECT_NE(output.find("'nonsense'"), std::string::npos) << output;
  EXPECT_NE(output.find("reference, "), std::string::npos) << output;
}

}  // namespace
}  // namespace qna::kernels::testing
