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

TEST(Text, NearestWord) {
  const std::vector<std::string> words = {"epochs", "batch", "model", "qna_vit_tiny", "val"};
  EXPECT_EQ(nearest("epoch", words), "epochs");
  EXPECT_EQ(nearest("bacth", words), "batch");  // two letters exchanged are one mistake
  EXPECT_EQ(nearest("Model", words), "model");
  EXPECT_EQ(nearest("qna_vit_tinny", words), "qna_vit_tiny");
  EXPECT_EQ(nearest("vla", words), "val");
  EXPECT_EQ(nearest("modelling", words), "model");
  EXPECT_EQ(nearest("weights", words), "");
  EXPECT_EQ(nearest("x", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(100000, 'm'), words), "");
  EXPECT_EQ(did_you_mean("epoch", words), "; did you mean 'epochs'?");
  EXPECT_EQ(did_you_mean("weights", words), "");
}

}  // namespace
}  // namespace qna
