#include "qna/coco/summary.h"

#include <gtest/gtest.h>

namespace qna::coco {
namespace {

TEST(Summary, LinesAreThoseOfPycocotools) {
  EXPECT_EQ(summary_line(kMeasures[0], 0.50458),
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.505");
  EXPECT_EQ(summary_line(kMeasures[1], 0.69697),
            " Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.697");
  EXPECT_EQ(summary_line(kMeasures[2], -1),
            " Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = -1.000");
  EXPECT_EQ(summary_line(kMeasures[6], 0.38681),
            " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.387");
  EXPECT_EQ(summary_line(kMeasures[10], 0.56642),
            " Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.566");
}

}  // namespace
}  // namespace qna::coco
