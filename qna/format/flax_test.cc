// Checkpoints that are as they should be: the authors' format, and every form flax can write.
#include "qna/format/flax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "qna/base/file.h"
#include "qna/format/safetensors.h"
#include "tests/support/flax_writer.h"
#include "tests/support/temporary_folder.h"

namespace qna::format {
namespace {

namespace flax = testing::flax;

FlaxState parse(const std::string& bytes) {
  return parse_flax(std::as_bytes(std::span(bytes)), "memory");
}

template <typename T>
std::vector<T> values_of(const FlaxArray& array) {
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::string text_of(const FlaxArray& array) {
  return {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()};
}

std::vector<std::string> paths_of(const FlaxState& state) {
  std::vector<std::string> paths;
  for (const auto& [path, array] : state) paths.push_back(path);
  return paths;
}

using Shape = std::vector<int64_t>;
using Paths = std::vector<std::string>;

// The numbers below are those Python's msgpack and numpy read from the same files.
struct Golden {
  std::string name;
  int64_t taps;
  int64_t parameters;
  double sum_of_magnitudes;
  float first_key_weight, last_key_weight;
};

class GoldenFlax : public ::testing::TestWithParam<Golden> {
 protected:
  std::string path(const char* suffix) const {
    return QNA_TESTS_DIR "/golden/" + GetParam().name + suffix;
  }
};

TEST_P(GoldenFlax, HoldsTheNumbersPythonReads) {
  const FlaxState state = read_flax(path(".flax.msgpack"));
  EXPECT_EQ(state.size(), 115u);  // the step and 114 parameters
  EXPECT_EQ(state.at("step").dtype, DType::kI64);
  EXPECT_EQ(state.at("step").shape, Shape{});
  EXPECT_EQ(values_of<int64_t>(state.at("step")), std::vector<int64_t>{7});

  int64_t parameters = 0;
  double sum = 0;
  for (const auto& [path, array] : state) {
    if (path == "step") continue;
    EXPECT_EQ(path.find("params."), 0u);
    EXPECT_EQ(array.dtype, DType::kF32);
    for (const float value : values_of<float>(array)) {
      sum += std::abs(static_cast<double>(value));
      ++parameters;
    }
  }
  EXPECT_EQ(parameters, GetParam().parameters);
  EXPECT_NEAR(sum, GetParam().sum_of_magnitudes, 1e-6);  // sums in double, of half a million

  const std::string layer = "params.QnAStage_0.QnA_Block_1.FusedKQnA_0.";
  EXPECT_EQ(state.at(layer + "Wk").shape, (Shape{16, 16}));
  EXPECT_EQ(values_of<float>(state.at(layer + "Wk")).front(), GetParam().first_key_weight);
  EXPECT_EQ(values_of<float>(state.at(layer + "Wk")).back(), GetParam().last_key_weight);
  EXPECT_EQ(state.at(layer + "attn_scale_weights").shape, (Shape{1, 1, GetParam().taps, 4}));
  EXPECT_EQ(state.at(layer + "rpe_bias").shape, (Shape{GetParam().taps, 4}));
  EXPECT_EQ(state.at("params.StemBlock_0.conv_1x1.kernel").shape, (Shape{4, 4, 3, 16}));
}

// The other file holds a gradient for every parameter.
TEST_P(GoldenFlax, HasTheNamesAndShapesOfTheGradients) {
  const FlaxState state = read_flax(path(".flax.msgpack"));
  const SafetensorsFile gradients(path(".io.safetensors"));
  EXPECT_EQ(gradients.tensors().size(), 3 + 114u);  // x, y, dy
  for (const TensorView& tensor : gradients.tensors()) {
    if (!tensor.name.starts_with("grad.")) continue;
    const auto found = state.find("params." + tensor.name.substr(5));
    ASSERT_NE(found, state.end()) << tensor.name;
    EXPECT_EQ(found->second.shape, tensor.shape) << tensor.name;
    EXPECT_EQ(found->second.dtype, tensor.dtype) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenFlax,
                         ::testing::Values(Golden{"qna_vit_micro", 9, 539946, 41936.146025233655,
                                                  0x1.6f3758p-2f, 0x1.233b9cp-7f},
                                           Golden{"qna_vit_micro_7x7", 49, 546666,
                                                  42141.11135015638, 0x1.8391b2p-3f,
                                                  -0x1.dd9fd4p-5f}),
                         [](const auto& info) { return info.param.name; });

TEST(Flax, ReadsAllDtypes) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string bytes = std::string("abcdefghABCDEFGH12345678").substr(0, 3 * size_of(dtype));
    const FlaxState state =
        parse(flax::map({{"w", flax::array({3, 1}, std::string(numpy_name_of(dtype)), bytes)}}));
    EXPECT_EQ(state.at("w").dtype, dtype);
    EXPECT_EQ(state.at("w").shape, (Shape{3, 1}));
    EXPECT_EQ(text_of(state.at("w")), bytes);
  }
}

TEST(Flax, PathsHaveDots) {
  const std::string leaf = flax::array({1}, "uint8", "x");
  const FlaxState state = parse(flax::map(
      {{"params", flax::map({{"b", leaf}, {"a", flax::map({{"c", leaf}})}})}, {"step", leaf}}));
  EXPECT_EQ(paths_of(state), (Paths{"params.a.c", "params.b", "step"}));
}

TEST(Flax, NothingIsLeftOut) {
  EXPECT_TRUE(parse(flax::map({})).empty());
  EXPECT_TRUE(parse(flax::map({{"opt_state", flax::map({})}, {"scale", flax::nil()}})).empty());
}

TEST(Flax, NumbersAreArraysWithoutDimensions) {
  const FlaxState state = parse(flax::map({
      {"float", flax::value(2.5)},
      {"large", flax::value(~uint64_t{0})},
      {"negative", flax::value(-3)},
      {"numpy", flax::array({}, "int32", std::string_view("\5\0\0\0", 4), 3)},
      {"single", flax::value(0.5f)},
      {"step", flax::value(300)},
      {"true", flax::value(true)},
  }));
  for (const auto& [path, array] : state) EXPECT_EQ(array.shape, Shape{}) << path;
  EXPECT_EQ(values_of<double>(state.at("float")), std::vector<double>{2.5});
  EXPECT_EQ(state.at("float").dtype, DType::kF64);
  EXPECT_EQ(values_of<uint64_t>(state.at("large")), std::vector<uint64_t>{~uint64_t{0}});
  EXPECT_EQ(state.at("large").dtype, DType::kU64);
  EXPECT_EQ(values_of<int64_t>(state.at("negative")), std::vector<int64_t>{-3});
  EXPECT_EQ(state.at("negative").dtype, DType::kI64);
  EXPECT_EQ(values_of<int32_t>(state.at("numpy")), std::vector<int32_t>{5});
  EXPECT_EQ(state.at("numpy").dtype, DType::kI32);
  EXPECT_EQ(values_of<double>(state.at("single")), std::vector<double>{0.5});
  EXPECT_EQ(values_of<int64_t>(state.at("step")), std::vector<int64_t>{300});
  EXPECT_EQ(state.at("step").dtype, DType::kI64);
  EXPECT_EQ(text_of(state.at("true")), "\1");
  EXPECT_EQ(state.at("true").dtype, DType::kBool);
}

TEST(Flax, EmptyArrays) {
  const FlaxState state = parse(flax::map({{"w", flax::array({0, 3}, "float32", "")}}));
  EXPECT_EQ(state.at("w").shape, (Shape{0, 3}));
  EXPECT_TRUE(state.at("w").bytes.empty());
}

TEST(Flax, JoinsChunks) {
  // More than ten, so that the order of the numbers is not the order of the letters.
  std::vector<std::string> chunks;
  std::string joined;
  for (int i = 0; i < 12; ++i) {
    const std::string bytes(2, static_cast<char>('a' + i));
    chunks.push_back(flax::array({1}, "float16", bytes));
    joined += bytes;
  }
  for (const std::string& shape :
       {flax::numbered({flax::value(3), flax::value(4)}), flax::value(std::vector<int>{3, 4})}) {
    const FlaxState state =
        parse(flax::map({{"params", flax::map({{"big", flax::chunked(shape, chunks)}})}}));
    EXPECT_EQ(paths_of(state), Paths{"params.big"});
    const FlaxArray& array = state.at("params.big");
    EXPECT_EQ(array.dtype, DType::kF16);
    EXPECT_EQ(array.shape, (Shape{3, 4}));
    EXPECT_EQ(text_of(array), joined);
  }
}

TEST(Flax, ReadsFromAFile) {
  const testing::TemporaryFolder temporary;
  write_file(temporary.path("a"), flax::map({{"step", flax::value(1)}}));
  EXPECT_EQ(paths_of(read_flax(temporary.path("a"))), Paths{"step"});
}

}  // namespace
}  // namespace qna::format
