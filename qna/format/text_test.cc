#include "qna/format/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace qna::format {
namespace {

TEST(Utf8, TakesAllLengths) {
  for (const char* text : {"", "plain", "\x7f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                           "\uffff", "\U00010000", "\U0010ffff", "a\u00e4b\U0001f600c"}) {
    EXPECT_TRUE(is_utf8(text)) << in_quotes(text);
  }
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
}

TEST(Utf8, RefusesWhatIsNone) {
  const char* const texts[] = {
      "\x80",              // a continuation without a lead
      "a\xbf",             //
      "\xc3",              // cut off
      "\xe2\x82",          //
      "\xf0\x9f\x98",      //
      "\xc3(",             // no continuation
      "\xc0\xaf",          // '/' in two bytes
      "\xe0\x80\xaf",      // in three
      "\xf0\x80\x80\xaf",  // in four
      "\xed\xa0\x80",      // half of a surrogate pair
      "\xf4\x90\x80\x80",  // beyond U+10FFFF
      "\xf8\x88\x80\x80\x80",
      "\xff",
  };
  for (const char* text : texts) EXPECT_FALSE(is_utf8(text)) << in_quotes(text);
}

TEST(InQuotes, KeepsPlainTextAndHidesTheRest) {
  EXPECT_EQ(in_quotes(""), "''");
  EXPECT_EQ(in_quotes("params.Wk"), "'params.Wk'");
  EXPECT_EQ(in_quotes("a\x1b[2J\n\xff"), "'a\\x1b[2J\\x0a\\xff'");
  EXPECT_EQ(in_quotes(std::string_view("a\0b", 3)), "'a\\x00b'");
}

TEST(InQuotes, CutsLongText) {
  EXPECT_EQ(in_quotes(std::string(200, 'a')), "'" + std::string(200, 'a') + "'");
  EXPECT_EQ(in_quotes(std::string(201, 'a')), "'" + std::string(200, 'a') + "...'");
}

TEST(Printable, ControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2J\n\x7f b\xc3\xa9"), "a?[2J?? b\xc3\xa9");
}

}  // namespace
}  // namespace qna::format
