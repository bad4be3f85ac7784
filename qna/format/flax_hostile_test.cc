// Checkpoints that break a rule. Each has its own message; none crashes or reads beyond the file.
#include <gtest/gtest.h>

#include "qna/format/flax.h"
#include "tests/support/flax_writer.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::format {
namespace {

namespace flax = testing::flax;

// A copy of exactly this size, so that the address sanitizer sees a read beyond its end.
FlaxState parse(std::string_view content) {
  const std::vector<char> bytes(content.begin(), content.end());
  return parse_flax(std::as_bytes(std::span(bytes)), "f");
}

std::string complaint(std::string_view bytes) {
  return testing::complaint_of([&] { parse(bytes); });
}

// Of a file that holds this object under "w".
std::string leaf_complaint(const std::string& object) {
  return complaint(flax::map({{"w", object}}));
}

TEST(HostileFlax, WholeFile) {
  EXPECT_EQ(complaint(""), "f: the msgpack data is cut off after 0 bytes");
  EXPECT_EQ(complaint("\xc1"), "f: this is not msgpack data");
  EXPECT_EQ(complaint(flax::value(3)), "f: a checkpoint must be a map, got 3");
  EXPECT_EQ(complaint(flax::list({})), "f: a checkpoint must be a map, got a list");
  EXPECT_EQ(complaint(flax::map({}) + "xy"), "f: 2 bytes follow the msgpack data");
  EXPECT_EQ(complaint(flax::chunked(flax::numbered({}), {})),
            "f: a checkpoint must be a map of arrays, got one array");
  EXPECT_EQ(testing::complaint_of([] { read_flax("missing"); }),
            "cannot read missing: No such file or directory");
}

TEST(HostileFlax, SizesThatAreNotThere) {
  const std::string cut = "f: the msgpack data is cut off after 5 bytes";
  const std::string many = "f: a msgpack map or list has more than 65536 members";
  EXPECT_EQ(complaint("\xdf\xff\xff\xff\xff"), many);              // map
  EXPECT_EQ(complaint("\xdd\xff\xff\xff\xff"), many);              // list
  EXPECT_EQ(complaint(std::string_view("\xdf\0\1\0\0", 5)), cut);  // 65536 members
  EXPECT_EQ(complaint("\xdb\xff\xff\xff\xff"), cut);               // string
  EXPECT_EQ(complaint("\xc6\xff\xff\xff\xff"), cut);               // bytes
  EXPECT_EQ(complaint("\xc9\xff\xff\xff\xff"), cut);               // extension
  EXPECT_EQ(leaf_complaint("\xc9\xff\xff\xff\xff\1"),
            "f: the msgpack data is cut off after 9 bytes");
}

TEST(HostileFlax, Nesting) {
  const auto nested = [](int depth) {
    std::string object = flax::value(1);
    for (int i = 0; i < depth; ++i) object = flax::map({{"a", object}});
    return object;
  };
  EXPECT_EQ(complaint(nested(32)), "");
  EXPECT_EQ(complaint(nested(33)), "f: the msgpack data is nested deeper than 32");
  EXPECT_EQ(complaint(std::string(1'000'000, '\x91')),
            "f: the msgpack data is nested deeper than 32");
  // Every level claims the most members it may have.
  std::string claims;
  for (int i = 0; i < 31; ++i) claims += std::string("\xdf\0\1\0\0\xa1k", 7);
  EXPECT_EQ(complaint(claims), "f: the msgpack data is cut off after 217 bytes");
}

TEST(HostileFlax, Keys) {
  const std::string leaf = flax::value(1);
  EXPECT_EQ(complaint(flax::raw_map({{flax::value(7), leaf}})), "f: keys must be strings, got 7");
  EXPECT_EQ(leaf_complaint(flax::raw_map({{flax::nil(), leaf}})),
            "f: 'w': keys must be strings, got nil");
  EXPECT_EQ(leaf_complaint(flax::map({{"", leaf}})), "f: 'w': there is an empty key");
  EXPECT_EQ(leaf_complaint(flax::map({{"a.b", leaf}})), "f: 'w': the key 'a.b' has a dot");
  EXPECT_EQ(leaf_complaint(flax::map({{"\xff", leaf}})), "f: 'w': the key '\\xff' is not UTF-8");
  EXPECT_EQ(leaf_complaint(flax::map({{"a", leaf}, {"a", leaf}})),
            "f: 'w': there are two keys 'a'");
  // The paths would differ, and yet it is not clear what the file means.
  EXPECT_EQ(complaint(flax::map({{"a", flax::map({{"b", leaf}})}, {"a", flax::map({})}})),
            "f: there are two keys 'a'");
}

TEST(HostileFlax, Leaves) {
  const std::string wanted = "f: 'w': expected a map, an array, a number or nil, got ";
  EXPECT_EQ(leaf_complaint(flax::value("text")), wanted + "'text'");
  EXPECT_EQ(leaf_complaint(flax::binary("x")), wanted + "bytes");
  EXPECT_EQ(leaf_complaint(flax::list({})), wanted + "a list");
  EXPECT_EQ(leaf_complaint(flax::extension(2, "")), "f: 'w': complex numbers are not supported");
  EXPECT_EQ(leaf_complaint(flax::extension(-1, "12345678")),
            "f: 'w': the extension type must be 1 or 3, got -1");
}

TEST(HostileFlax, Arrays) {
  const std::string shape = flax::value(std::vector<int>{2});
  const std::string dtype = flax::value("float32");
  const std::string bytes = flax::binary("12345678");
  const auto of = [](const std::vector<std::string>& parts) {
    return leaf_complaint(flax::extension(1, flax::list(parts)));
  };
  EXPECT_EQ(of({shape, dtype, bytes}), "");
  const std::string parts = "f: 'w': an array must be a list of shape, dtype and bytes";
  EXPECT_EQ(of({shape, dtype}), parts);
  EXPECT_EQ(of({shape, dtype, bytes, bytes}), parts);
  EXPECT_EQ(leaf_complaint(flax::extension(1, flax::value(1))), parts);
  EXPECT_EQ(of({flax::value(2), dtype, bytes}), "f: 'w': shape: expected a list or a map, got 2");
  EXPECT_EQ(of({shape, flax::value(4), bytes}), "f: 'w': dtype must be a string, got 4");
  EXPECT_EQ(of({shape, flax::value("complex64"), bytes}),
            "f: 'w': dtype must be one of " + all_numpy_names() + ", got 'complex64'");
  EXPECT_EQ(of({shape, dtype, flax::value("12345678")}), "f: 'w': expected bytes, got '12345678'");
  EXPECT_EQ(leaf_complaint(flax::extension(1, "")),
            "f: 'w': array: the msgpack data is cut off after 0 bytes");
  EXPECT_EQ(leaf_complaint(flax::extension(1, flax::list({shape, dtype, bytes}) + "x")),
            "f: 'w': array: 1 bytes follow the msgpack data");
}

TEST(HostileFlax, Shapes) {
  const auto of = [](const std::string& shape) {
    return leaf_complaint(
        flax::extension(1, flax::list({shape, flax::value("float32"), flax::binary("12345678")})));
  };
  const std::string rule = "f: 'w': shape must hold integers from 0 to 2^63 - 1, got ";
  EXPECT_EQ(of(flax::value(std::vector<int>{-2})), rule + "-2");
  EXPECT_EQ(of(flax::value(std::vector<uint64_t>{~uint64_t{0}})), rule + "18446744073709551615");
  EXPECT_EQ(of(flax::value(std::vector<double>{2.5})), rule + "2.5");
  EXPECT_EQ(of(flax::value(std::vector<int>{3})), "f: 'w': float32 [3] takes 12 bytes, got 8");
  EXPECT_EQ(of(flax::value(std::vector<int64_t>{int64_t{1} << 62})),
            "f: 'w': shape [4611686018427387904] makes 2^63 bytes or more");
  EXPECT_EQ(of(flax::value(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32})),
            "f: 'w': shape [4294967296, 4294967296] makes 2^63 bytes or more");
}

TEST(HostileFlax, Chunks) {
  const std::string mark = "__msgpack_chunked_array__";
  const std::string shape = flax::numbered({flax::value(4)});
  const std::string half = flax::array({2}, "uint8", "ab");
  const std::string chunks = flax::numbered({half, half});
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {half, half})), "");
  EXPECT_EQ(leaf_complaint(flax::map({{mark, flax::value(true)}, {"chunks", chunks}})),
            "f: 'w': the chunked array has no shape");
  EXPECT_EQ(leaf_complaint(flax::map({{mark, flax::value(true)}, {"shape", shape}})),
            "f: 'w': the chunked array has no chunks");
  EXPECT_EQ(
      leaf_complaint(flax::map(
          {{mark, flax::value(true)}, {"shape", shape}, {"chunks", chunks}, {"more", shape}})),
      "f: 'w': a chunked array has 3 members, got 4");
  EXPECT_EQ(
      leaf_complaint(flax::map({{mark, flax::value(false)}, {"shape", shape}, {"chunks", chunks}})),
      "f: 'w': __msgpack_chunked_array__ must be true, got false");
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {})), "f: 'w': the chunked array has no chunk");
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {half})), "f: 'w': uint8 [4] takes 4 bytes, got 2");
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {half, flax::array({2}, "int8", "ab")})),
            "f: 'w': chunk 1 is of int8, but the first is of uint8");
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {half, flax::array({2, 1}, "uint8", "ab")})),
            "f: 'w': chunk 1 must have 1 dimension, got 2");
  EXPECT_EQ(leaf_complaint(flax::chunked(shape, {half, flax::value(1)})),
            "f: 'w': chunk 1: expected an array, got 1");
  EXPECT_EQ(leaf_complaint(flax::chunked(flax::map({{"1", flax::value(4)}}), {half, half})),
            "f: 'w': shape: has 1 members, but none is '0'");
  EXPECT_EQ(leaf_complaint(flax::chunked(
                flax::numbered({flax::value(int64_t{1} << 62), flax::value(4)}), {half, half})),
            "f: 'w': shape [4611686018427387904, 4] makes 2^63 bytes or more");
}

// A small checkpoint with all that flax can write.
std::string small_checkpoint() {
  const std::string half = flax::array({3}, "bfloat16", "abcdef");
  return flax::map({
      {"step", flax::array({}, "int32", std::string_view("\5\0\0\0", 4), 3)},
      {"params", flax::map({{"w", flax::array({2, 2}, "float32", "0123456789abcdef")},
                            {"big", flax::chunked(flax::numbered({flax::value(2), flax::value(3)}),
                                                  {half, half})}})},
      {"opt_state", flax::map({})},
      {"rate", flax::value(0.1)},
      {"dynamic_scale", flax::nil()},
  });
}

std::string golden_checkpoint() {
  return testing::content_of(QNA_TESTS_DIR "/golden/qna_vit_micro.flax.msgpack");
}

// Refused with a qna::Error, or every array has as many bytes as its shape says.
bool is_refused(std::string_view bytes) {
  try {
    for (const auto& [path, array] : parse(bytes)) {
      EXPECT_EQ(byte_count(array.dtype, array.shape), array.bytes.size()) << path;
    }
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(HostileFlax, EveryTruncation) {
  const std::string small = small_checkpoint();
  EXPECT_FALSE(is_refused(small));
  for (size_t size = 0; size < small.size(); ++size) {
    EXPECT_TRUE(is_refused(std::string_view(small).substr(0, size))) << size;
  }
  const std::string golden = golden_checkpoint();
  for (size_t size = 0; size < golden.size(); size += 4099) {  // a prime: all kinds of places
    EXPECT_TRUE(is_refused(std::string_view(golden).substr(0, size))) << size;
  }
}

TEST(HostileFlax, RandomDamage) {
  int refused = 0;
  const auto use = [&](std::string_view damaged) { refused += is_refused(damaged); };
  testing::with_random_damage(small_checkpoint(), 20000, use);
  EXPECT_GT(refused, 10000);  // the rest changed values or names
  // Of the real file almost all bytes are weights; its first part is names and sizes.
  const std::string golden = golden_checkpoint();
  testing::with_random_damage(golden, 100, use);
}

}  // namespace
}  // namespace qna::format
