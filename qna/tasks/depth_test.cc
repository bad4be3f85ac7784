#include "qna/tasks/depth.h"

#include <gtest/gtest.h>

namespace qna::tasks {
namespace {

TEST(Depth, CountsStagesFromTheHead) {
  EXPECT_EQ(depth_in_body("stages.3.blocks.0.mlp.fc1.weight", 4), 1);
  EXPECT_EQ(depth_in_body("stages.0.downsample.norm.bias", 4), 4);
  EXPECT_EQ(depth_in_body("stem.conv1.weight", 4), 5);
  EXPECT_EQ(depth_in_body("layer4.2.conv3.weight", 4), 1);
  EXPECT_EQ(depth_in_body("layer1.0.conv1.weight", 4), 4);
  EXPECT_EQ(depth_in_body("conv1.weight", 4), 5);
}

}  // namespace
}  // namespace qna::tasks
