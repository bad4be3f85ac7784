#include "qna/format/toml.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qna/base/error.h"

namespace qna::format {
namespace {

using nlohmann::json;

TEST(ToToml, ReadsBackTheSame) {
  const json object = {{"number", 1},
                       {"whole", 1.0},
                       {"small", 1e-8},
                       {"third", 1.0 / 3},
                       {"negative", -5},
                       {"yes", true},
                       {"text", "it's \"quoted\", été \\ '''"},
                       {"lines", "\nleading\nand trailing\n"},
                       {"empty", json::array()},
                       {"sizes", {{1, 2}, {3}}},
                       {"table", {{"inner", {{"deep", "x"}}}, {"a key with spaces", 1}}},
                       {"rows", {{{"a", 1}}, {{"a", 2}, {"b", {0.5, 1.0}}}}}};
  const json again = parse_toml(to_toml(object), "test");
  EXPECT_EQ(again, object);
  // Not only equal, but of the same type.
  EXPECT_TRUE(again["whole"].is_number_float());
  EXPECT_TRUE(again["number"].is_number_integer());
}

TEST(ToToml, IsAsPeopleWriteIt) {
  EXPECT_EQ(to_toml({{"name", "qna_vit_tiny"}}), "name = \"qna_vit_tiny\"\n");
  EXPECT_EQ(to_toml({{"lr", 0.003}}), "lr = 0.003\n");
  EXPECT_EQ(to_toml({{"scale", 2.0}}), "scale = 2.0\n");
}

TEST(ParseToml, TakesEveryLetterInQuotesAndComments) {
  const json read = parse_toml(
      "\xEF\xBB\xBF# \xC3\xA9t\xC3\xA9 \"\n'\xC3\xA9' = \"\xC3\xA9\\\"\xC3\xA9\" # \xC3\xA9\n"
      "b = '''\n\xC3\xA9'\xC3\xA9\n'''\nc = \"\"\"\xC3\xA9\"\n\xC3\xA9\"\"\"\n",
      "test");
  EXPECT_EQ(read["\xC3\xA9"], "\xC3\xA9\"\xC3\xA9");
  EXPECT_EQ(read["b"], "\xC3\xA9'\xC3\xA9\n");
  EXPECT_EQ(read["c"], "\xC3\xA9\"\n\xC3\xA9");
}

// Toml++ itself takes some of these for impossible.
TEST(ParseToml, RefusesNamesThatCannotBegin) {
  for (const char* text : {"[%]", "[[\xC3\xA9]]", "[.a]", "[=]", "%", "a.% = 1", "{a = 1}", "[",
                           "a = \xC3\xA9", "\xC3\xA9 = 1", "a = 1\xC2\xA0"}) {
    EXPECT_THROW(parse_toml(text, "test"), Error) << text;
  }
}

}  // namespace
}  // namespace qna::format
