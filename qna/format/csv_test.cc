#include "qna/format/csv.h"

#include <gtest/gtest.h>

#include "tests/support/complaint.h"

namespace qna::format {
namespace {

using Lines = std::vector<std::vector<std::string>>;

TEST(Csv, ReadsWhatItWrites) {
  const Lines lines = {{"row", "top1"}, {"a, b", ""}, {"say \"no\"", "2"}, {"two\nlines", "\r"}};
  std::string text;
  for (const auto& line : lines) text += csv_text(line[0]) + "," + csv_text(line[1]) + "\n";
  EXPECT_EQ(parse_csv(text, "t.csv"), lines);
}

TEST(Csv, LinesEndAsTheyDoElsewhere) {
  EXPECT_EQ(parse_csv("a,b\r\n\"c\",d\r\n", "t.csv"), (Lines{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(parse_csv("a,", "t.csv"), (Lines{{"a", ""}}));
  EXPECT_TRUE(parse_csv("", "t.csv").empty());
}

TEST(Csv, Mistakes) {
  const auto complaint = [](const char* text) {
    return ::qna::testing::complaint([&] { parse_csv(text, "t.csv"); });
  };
  EXPECT_NE(complaint("a,b\n\"c,d").find("t.csv, line 2: a quote is not closed"),
            std::string::npos);
  EXPECT_NE(complaint("\"").find("not closed"), std::string::npos);
  EXPECT_NE(complaint("a,b\nc\n").find("must have 2 values as the first line has, got 1"),
            std::string::npos);
  EXPECT_NE(complaint("\"a\"b").find("must follow a closing quote"), std::string::npos);
}

}  // namespace
}  // namespace qna::format
