// Files that are as they should be: against those of the Python library, and there and back.
#include "qna/format/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::format {
namespace {

using testing::complaint_of;
using testing::content_of;
using Metadata = std::map<std::string, std::string>;

std::string golden(const std::string& name) { return QNA_TESTS_DIR "/format/" + name; }

// Tensors with bytes that count up, as in tests/format/make_golden.py.
class Tensors {
 public:
  void add(std::string name, DType dtype, std::vector<int64_t> shape) {
    std::vector<std::byte>& bytes = storage_.emplace_back(byte_count(dtype, shape).value());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(dtype == DType::kBool ? i % 2 : i);
    }
    views_.push_back({std::move(name), dtype, std::move(shape), bytes});
  }

  std::vector<TensorView>& views() { return views_; }

 private:
  std::deque<std::vector<std::byte>> storage_;  // a deque, as views point at its members
  std::vector<TensorView> views_;
};

Tensors golden_tensors() {
  Tensors tensors;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.add("matrix." + std::string(numpy_name_of(dtype)), dtype, {3, 5});
    tensors.add("scalar." + std::string(numpy_name_of(dtype)), dtype, {});
  }
  tensors.add("empty", DType::kF32, {0, 3});
  tensors.add("many.dimensions", DType::kI8, {1, 2, 1, 3, 1});
  tensors.add("quote\" backslash\\ newline\n control\x01 umlaut\u00e4", DType::kF32, {2});
  return tensors;
}

const Metadata kGoldenMetadata = {{"author", "nobody"}, {"text", "quote\" newline\n umlaut\u00e4"}};

void expect_equal(const TensorView& a, const TensorView& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.shape, b.shape);
  ASSERT_EQ(a.bytes.size(), b.bytes.size());
  EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << a.name;
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const SafetensorsFile file(golden("all_dtypes.safetensors"));
  EXPECT_EQ(file.metadata(), kGoldenMetadata);
  Tensors wanted = golden_tensors();
  EXPECT_EQ(file.tensors().size(), wanted.views().size());
  for (const TensorView& tensor : wanted.views()) expect_equal(file.at(tensor.name), tensor);
}

TEST(Safetensors, WritesTheBytesThatPythonWrites) {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary.path("written");
  write_safetensors(path, golden_tensors().views(), kGoldenMetadata);
  EXPECT_EQ(content_of(path), content_of(golden("all_dtypes.safetensors")));

  Tensors one;
  one.add("w", DType::kF32, {2, 2});
  write_safetensors(path, one.views());
  EXPECT_EQ(content_of(path), content_of(golden("one_tensor.safetensors")));

  write_safetensors(path, {});
  EXPECT_EQ(content_of(path), content_of(golden("no_tensor.safetensors")));
  const SafetensorsFile file(path);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, OrderGivenDoesNotMatter) {
  const testing::TemporaryFolder temporary;
  Tensors tensors = golden_tensors();
  std::ranges::reverse(tensors.views());
  write_safetensors(temporary.path("a"), tensors.views(), kGoldenMetadata);
  EXPECT_EQ(content_of(temporary.path("a")), content_of(golden("all_dtypes.safetensors")));
}

TEST(Safetensors, WrittenTensorsAreAlignedAndInFileOrder) {
  const testing::TemporaryFolder temporary;
  for (size_t length = 1; length <= 17; ++length) {  // every length of padding
    Tensors tensors = golden_tensors();
    tensors.add(std::string(length, 'n'), DType::kU8, {3});
    write_safetensors(temporary.path("a"), tensors.views());
    const SafetensorsFile file(temporary.path("a"));
    const std::byte* last = nullptr;
    for (const TensorView& tensor : file.tensors()) {
      const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
      EXPECT_EQ(address % size_of(tensor.dtype), 0u) << tensor.name;
      EXPECT_GE(tensor.bytes.data(), last);
      last = tensor.bytes.data();
    }
  }
}

TEST(Safetensors, FindsByName) {
  const std::string path = golden("one_tensor.safetensors");
  const SafetensorsFile file(path);
  ASSERT_NE(file.find("w"), nullptr);
  EXPECT_EQ(file.find("w"), &file.at("w"));
  EXPECT_EQ(file.find("v"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
  EXPECT_EQ(complaint_of([&] { file.at("v"); }), path + ": there is no tensor 'v'");
}

TEST(Safetensors, MappingKeepsTheBytesWhenTheFileObjectIsGone) {
  std::shared_ptr<const void> mapping;
  TensorView tensor;
  {
    const SafetensorsFile file(golden("one_tensor.safetensors"));
    mapping = file.mapping();
    tensor = file.at("w");
  }
  Tensors wanted;
  wanted.add("w", DType::kF32, {2, 2});
  expect_equal(tensor, wanted.views()[0]);
}

// The views point into the file that is replaced.
TEST(Safetensors, FileMayBeWrittenOverItself) {
  const testing::TemporaryFolder temporary;
  const std::string path = temporary.path("a");
  write_safetensors(path, golden_tensors().views(), kGoldenMetadata);
  const SafetensorsFile file(path);
  write_safetensors(path, file.tensors(), file.metadata());
  EXPECT_EQ(content_of(path), content_of(golden("all_dtypes.safetensors")));
}

// A tensor's own alignment is not promised by the format.
TEST(Safetensors, ReadsTensorsThatAreNotAligned) {
  const testing::TemporaryFolder temporary;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const uint64_t length = header.size();
  std::ofstream(temporary.path("a"), std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << header << "abcde";
  const SafetensorsFile file(temporary.path("a"));
  EXPECT_EQ(std::memcmp(file.at("b").bytes.data(), "bcde", 4), 0);
}

class RefusesToWrite : public ::testing::Test {
 protected:
  // What is said of one wrong tensor, without the path at its beginning.
  std::string complaint(std::vector<TensorView> tensors, const Metadata& metadata = {}) {
    const std::string path = temporary.path("a");
    const std::string said = complaint_of([&] { write_safetensors(path, tensors, metadata); });
    EXPECT_TRUE(std::filesystem::is_empty(temporary.folder()));
    EXPECT_EQ(said.substr(0, path.size() + 2), path + ": ");
    return said.size() > path.size() + 2 ? said.substr(path.size() + 2) : "";
  }

  const testing::TemporaryFolder temporary;
  const std::vector<std::byte> bytes = std::vector<std::byte>(8);
  const TensorView good{"w", DType::kF32, {2}, bytes};
};

TEST_F(RefusesToWrite, WrongNames) {
  TensorView other = good;
  other.dtype = DType::kI32;
  EXPECT_EQ(complaint({good, other}), "there are two tensors 'w'");
  other.name = "__metadata__";
  EXPECT_EQ(complaint({good, other}), "a tensor must not be named '__metadata__'");
  other.name = "\xff";
  EXPECT_EQ(complaint({good, other}), "the tensor name '\\xff' is not UTF-8");
}

TEST_F(RefusesToWrite, WrongSizes) {
  TensorView wrong = good;
  wrong.shape = {3};
  EXPECT_EQ(complaint({wrong}), "tensor 'w': F32 [3] takes 12 bytes, got 8");
  wrong.shape = {-2, -1};
  EXPECT_EQ(complaint({wrong}), "tensor 'w': shape [-2, -1] has a negative size or is too large");
  wrong.shape = {int64_t{1} << 62, 2};
  EXPECT_EQ(complaint({wrong}),
            "tensor 'w': shape [4611686018427387904, 2] has a negative size or is too large");
}

TEST_F(RefusesToWrite, WrongMetadata) {
  EXPECT_EQ(complaint({good}, {{"a", "\x80"}}), "metadata 'a' = '\\x80' is not UTF-8");
  EXPECT_EQ(complaint({good}, {{"\x80", "a"}}), "metadata '\\x80' = 'a' is not UTF-8");
}

}  // namespace
}  // namespace qna::format
