// Files that break a rule. Each has its own message; none crashes or reads beyond the file.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "qna/format/safetensors.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::format {
namespace {

class HostileSafetensors : public ::testing::Test {
 protected:
  void put(std::string_view content) const {
    std::filesystem::remove(path);  // cutting a file to write it again waits for the disk
    std::ofstream(path, std::ios::binary).write(content.data(), content.size());
  }

  // What is said of a file, without the path at its beginning.
  std::string complaint(std::string_view content) const {
    put(content);
    const std::string said = testing::complaint_of([&] { SafetensorsFile file(path); });
    if (said.empty()) return "";
    EXPECT_EQ(said.substr(0, path.size() + 2), path + ": ");
    return said.substr(path.size() + 2);
  }

  static std::string with_length(uint64_t length, std::string_view rest) {
    std::string content(8, '\0');
    std::memcpy(content.data(), &length, 8);
    return content.append(rest);
  }

  // Of a file with this header and so many bytes of data.
  std::string header_complaint(std::string_view header, size_t data = 0) const {
    return complaint(with_length(header.size(), std::string(header) + std::string(data, 'd')));
  }

  // Of a file whose one entry has this value.
  std::string entry_complaint(std::string_view entry, size_t data = 8) const {
    return header_complaint(R"({"w":)" + std::string(entry) + "}", data);
  }

  // The file is refused with a qna::Error, on disk and in memory, or all its views lie inside it.
  bool is_refused(std::string_view content) const {
    put(content);
    try {
      const auto bytes = std::make_shared<const std::string>(content);
      const std::span<const std::byte> all = std::as_bytes(std::span(*bytes));
      const SafetensorsFile on_disk(path);
      const SafetensorsFile file(bytes, path);
      EXPECT_EQ(file.tensors().size(), on_disk.tensors().size());
      for (const TensorView& tensor : file.tensors()) {
        EXPECT_GE(tensor.bytes.data(), all.data());
        EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), all.data() + all.size());
        EXPECT_EQ(byte_count(tensor.dtype, tensor.shape), tensor.bytes.size());
      }
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  const testing::TemporaryFolder temporary;
  const std::string path = temporary.path("hostile.safetensors");
};

TEST_F(HostileSafetensors, Length) {
  EXPECT_EQ(complaint(""), "a safetensors file has at least 8 bytes, got 0");
  EXPECT_EQ(complaint("1234567"), "a safetensors file has at least 8 bytes, got 7");
  EXPECT_EQ(complaint(with_length(0, "")), "the header length must not be 0");
  EXPECT_EQ(complaint(with_length(3, "{}")), "the header length is 3, but only 2 bytes follow");
  EXPECT_EQ(complaint(with_length(100'000'001, "{}")),
            "this is not a safetensors file: the header length must be at most 100000000, got "
            "100000001");
  EXPECT_EQ(complaint(with_length(~uint64_t{0}, "{}")),
            "this is not a safetensors file: the header length must be at most 100000000, got "
            "18446744073709551615");
}

TEST_F(HostileSafetensors, HeaderThatIsNoObject) {
  EXPECT_EQ(header_complaint("[]"), "the header must be a JSON object, but starts with '['");
  EXPECT_EQ(header_complaint(" {}"), "the header must be a JSON object, but starts with ' '");
  EXPECT_EQ(header_complaint("\xef\xbb\xbf{}"),
            "the header must be a JSON object, but starts with '\\xef'");
}

TEST_F(HostileSafetensors, HeaderThatIsNoJson) {
  for (const char* header : {"{", "{]", "{\"a\"}", "{} {}", "{}x", "{\"a\":1e999}", "{\"a\":01}",
                             "{/**/}", "{\"\\ud800\":1}", "{\"a\n\":1}", "{'a':1}"}) {
    const std::string said = header_complaint(header);
    EXPECT_EQ(said.find("the header is not JSON: "), 0u) << header << ": " << said;
  }
  EXPECT_EQ(header_complaint(std::string_view("{}\0", 3)), "the header holds a zero byte");
  EXPECT_EQ(header_complaint("{\"\xff\":1}"), "the header is not UTF-8");
  // What is quoted of the file stays short and printable.
  const std::string said = header_complaint("{\"" + std::string(5000, '\x7f'));
  EXPECT_LT(said.size(), 1000u);
  EXPECT_EQ(said.find('\x7f'), said.npos);
}

TEST_F(HostileSafetensors, Nesting) {
  EXPECT_EQ(entry_complaint(R"({"shape":[[]]})"), "the header is nested too deeply");
  EXPECT_EQ(entry_complaint(R"({"shape":{"a":{}}})"), "the header is nested too deeply");
  EXPECT_EQ(entry_complaint(std::string(1'000'000, '[')), "the header is nested too deeply");
}

TEST_F(HostileSafetensors, KeysThatComeTwice) {
  const std::string entry = R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})";
  EXPECT_EQ(header_complaint("{\"w\":" + entry + ",\"w\":" + entry + "}", 4),
            "the header has the key 'w' twice");
  EXPECT_EQ(header_complaint("{\"w\":" + entry + ",\"\\u0077\":" + entry + "}", 4),
            "the header has the key 'w' twice");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{},"__metadata__":{}})"),
            "the header has the key '__metadata__' twice");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{"a":"1","a":"1"}})"),
            "the header has the key 'a' twice");
  EXPECT_EQ(entry_complaint(R"({"dtype":"F32","dtype":"F32"})"),
            "the header has the key 'dtype' twice");
  // The same key in two objects is as it should be.
  EXPECT_EQ(header_complaint(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})",
                             8),
            "");
}

TEST_F(HostileSafetensors, Metadata) {
  EXPECT_EQ(header_complaint(R"({"__metadata__":[]})"),
            "__metadata__ must be an object, got array");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{"a":1}})"),
            "__metadata__ must hold strings, but 'a' is of type number");
}

TEST_F(HostileSafetensors, Entry) {
  EXPECT_EQ(entry_complaint("3"), "tensor 'w': the entry must be an object, got number");
  EXPECT_EQ(entry_complaint(R"({"dtype":"F32","strides":[1]})"),
            "tensor 'w': unknown key 'strides'");
  EXPECT_EQ(entry_complaint(R"({"shape":[2],"data_offsets":[0,8]})"),
            "tensor 'w': dtype is missing");
  EXPECT_EQ(entry_complaint(R"({"dtype":"F32","data_offsets":[0,8]})"),
            "tensor 'w': shape is missing");
  EXPECT_EQ(entry_complaint(R"({"dtype":"F32","shape":[2]})"),
            "tensor 'w': data_offsets is missing");
  EXPECT_EQ(entry_complaint(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"),
            "tensor 'w': dtype must be a string, got number");
  EXPECT_EQ(entry_complaint(R"({"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,8]})"),
            "tensor 'w': dtype must be one of " + all_names() + ", got 'F8_E4M3'");
}

TEST_F(HostileSafetensors, Shape) {
  const auto of_shape = [&](const std::string& shape) {
    return entry_complaint(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,8]})");
  };
  EXPECT_EQ(of_shape("2"), "tensor 'w': shape must be a list, got number");
  for (const std::string size : {"-1", "2.0", "1e3", "\"2\"", "null", "true", "9223372036854775808",
                                 "99999999999999999999"}) {
    const std::string said = of_shape("[" + size + "]");
    EXPECT_EQ(said.find("tensor 'w': shape must hold integers from 0 to 2^63 - 1, got "), 0u)
        << said;
  }
  EXPECT_EQ(of_shape("[-1]"), "tensor 'w': shape must hold integers from 0 to 2^63 - 1, got '-1'");
  for (const std::string shape : {"[9223372036854775807]", "[4294967296, 4294967296]",
                                  "[0, 9223372036854775807, 9223372036854775807]"}) {
    EXPECT_EQ(of_shape(shape), "tensor 'w': shape " + shape + " makes 2^63 bytes or more");
  }
  EXPECT_EQ(of_shape("[3]"), "tensor 'w': F32 [3] takes 12 bytes, but data_offsets make 8");
  EXPECT_EQ(of_shape("[0]"), "tensor 'w': F32 [0] takes 0 bytes, but data_offsets make 8");
}

TEST_F(HostileSafetensors, Offsets) {
  const auto of_offsets = [&](const std::string& offsets) {
    return entry_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}");
  };
  EXPECT_EQ(of_offsets("[0,8]"), "");
  EXPECT_EQ(of_offsets("{}"), "tensor 'w': data_offsets must be a list, got object");
  EXPECT_EQ(of_offsets("[8]"), "tensor 'w': data_offsets must hold 2 integers, got 1");
  EXPECT_EQ(of_offsets("[0,8,8]"), "tensor 'w': data_offsets must hold 2 integers, got 3");
  EXPECT_EQ(of_offsets("[8,0]"), "tensor 'w': data_offsets must not fall, got [8, 0]");
  EXPECT_EQ(of_offsets("[1,9]"),
            "tensor 'w': data_offsets end at 9, but the file has 8 bytes of data");
  EXPECT_EQ(of_offsets("[-8,0]"),
            "tensor 'w': data_offsets must hold integers from 0 to 2^63 - 1, got '-8'");
  EXPECT_EQ(of_offsets("[0,7]"), "tensor 'w': F32 [2] takes 8 bytes, but data_offsets make 7");
}

TEST_F(HostileSafetensors, Coverage) {
  const auto of_two = [&](const std::string& first, const std::string& second) {
    return header_complaint(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                                R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second +
                                "}}",
                            8);
  };
  EXPECT_EQ(of_two("[0,4]", "[4,8]"), "");
  EXPECT_EQ(of_two("[4,8]", "[0,4]"), "");
  EXPECT_EQ(of_two("[0,4]", "[3,7]"),
            "tensor 'b' begins at 3, inside the one before, which ends at 4");
  EXPECT_EQ(of_two("[0,4]", "[0,4]"),
            "tensor 'b' begins at 0, inside the one before, which ends at 4");
  EXPECT_EQ(entry_complaint(R"({"dtype":"U8","shape":[4],"data_offsets":[2,6]})"),
            "the bytes 0 to 2, before tensor 'w', belong to no tensor");
  EXPECT_EQ(entry_complaint(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"),
            "the last 4 bytes belong to no tensor");
  EXPECT_EQ(header_complaint("{}", 1), "the last 1 bytes belong to no tensor");
}

TEST_F(HostileSafetensors, EveryTruncation) {
  for (const char* name : {"one_tensor", "all_dtypes"}) {
    const std::string whole =
        testing::content_of(QNA_TESTS_DIR "/format/" + std::string(name) + ".safetensors");
    EXPECT_FALSE(is_refused(whole));
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_TRUE(is_refused(std::string_view(whole).substr(0, size))) << size;
    }
    EXPECT_TRUE(is_refused(whole + "x"));
  }
}

TEST_F(HostileSafetensors, RandomDamage) {
  for (const char* name : {"one_tensor", "all_dtypes"}) {
    const std::string whole =
        testing::content_of(QNA_TESTS_DIR "/format/" + std::string(name) + ".safetensors");
    int refused = 0;
    testing::with_random_damage(whole, 5000,
                                [&](std::string_view damaged) { refused += is_refused(damaged); });
    EXPECT_GT(refused, 1000);  // the rest changed data or names
  }
}

}  // namespace
}  // namespace qna::format
