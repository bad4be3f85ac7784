#include "qna/coco/oddities.h"

#include <gtest/gtest.h>

namespace qna::coco {
namespace {

Annotations one_image(std::vector<Annotation> annotations) {
  Annotations all;
  all.images = {{.id = 1, .file_name = "a.jpg", .width = 100, .height = 50}};
  all.categories = {{.id = 1, .name = "cat"}};
  all.annotations = std::move(annotations);
  return all;
}

TEST(Oddities, NoneInGoodFiles) {
  // The second box ends outside by rounding.
  EXPECT_TRUE(find_oddities(one_image({{.id = 1, .box = {0, 0, 100, 50}},
                                       {.id = 2, .box = {50.02, 0, 50, 50}}}))
                  .empty());
}

TEST(Oddities, AreCountedAndNamed) {
  Annotations all = one_image({{.id = 0, .box = {0, 0, 10, 10}},
                               {.id = 3, .box = {0, 0, 0, 10}},
                               {.id = 4, .box = {200, 0, 10, 10}},
                               {.id = 5, .box = {-3, 0, 10, 10}},
                               {.id = 6, .box = {0, 0, 9, 9}, .ignore = true},
                               {.id = 7, .box = {0, 0, 9, 9}, .crowd = true, .ignore = true}});
  all.images.push_back({.id = 2, .file_name = "b.jpg", .width = 0, .height = 0});
  all.categories.push_back({.id = 8, .name = "cat"});
  std::vector<std::string> lines;
  for (const Oddity& oddity : find_oddities(all)) lines.push_back(to_text(oddity));
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "1 annotations have a box without area: they are not used in training (ids 3)",
          "1 annotations have a box outside the picture: they are not used in training (ids 4)",
          "1 annotations have a box that reaches beyond the picture: training clips it (ids 5)",
          "1 annotations say 'ignore' but are no crowd: only the evaluation counts them (ids 6)",
          "1 annotations have the id 0: what finds them counts as wrong, as in pycocotools "
          "(ids 0)",
          "1 pictures do not say how large they are: boxes there cannot be clipped (ids 2)",
          "1 categories have no annotation: they have no average precision (ids 8)",
          "1 categories have the name of another one (ids 8)"}));
}

TEST(Oddities, LongListsAreCut) {
  EXPECT_EQ(to_text({"things", {1, 2, 3, 4, 5, 6, 7, 8}}), "8 things (ids 1, 2, 3, 4, 5, 6, 7, 8)");
  EXPECT_EQ(to_text({"things", {1, 2, 3, 4, 5, 6, 7, 8, 9}}),
            "9 things (ids 1, 2, 3, 4, 5, 6, 7, 8, ...)");
}

}  // namespace
}  // namespace qna::coco
