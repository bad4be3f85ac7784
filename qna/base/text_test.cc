#include "qna/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace qna {
namespace {

TEST(InBrackets, CutsLongShapes) {
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(in_brackets(Shape{}), "[]");
  EXPECT_EQ(in_brackets(Shape{3}), "[3]");
  EXPECT_EQ(in_brackets(Shape{2, -3}), "[2, -3]");
  EXPECT_EQ(in_brackets(Shape(1000)), "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ...]");
}

TEST(WithCommas, GroupsOfThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(15715560), "15,715,560");
}

}  // namespace
}  // namespace qna
