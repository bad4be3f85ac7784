#include "qna/predict/attention_sheets.h"

#include <gtest/gtest.h>

#include "qna/data/detection_testonly.h"
#include "qna/viz/draw.h"

namespace qna::predict {
namespace {

using data::testing::noise_image;

// Two queries and two heads on a map of 4 x 6, one position for 8 x 8 pixels.
engine::LayerAttention example() {
  engine::LayerAttention attention;
  attention.layer = {.name = "stages.1.blocks.0", .stage = 1, .heads = 2, .stride = 8};
  attention.maps = {
      .batch = 1, .queries = 2, .heads = 2, .height = 4, .width = 6, .attention = {}, .weight = {}};
  for (int i = 0; i < 2 * 2 * 24; ++i) {
    attention.maps.attention.push_back(static_cast<float>(i % 7));
  }
  for (int i = 0; i < 2 * 24; ++i) attention.maps.weight.push_back(static_cast<float>(i % 5));
  attention.kernels = {
      .rows = 4, .columns = 6, .kernel_h = 3, .kernel_w = 3, .attention = {}, .weight = {}};
  for (int i = 0; i < 2 * 2 * 24 * 9; ++i) {
    attention.kernels.attention.push_back(static_cast<float>(i % 11));
  }
  for (int i = 0; i < 2 * 24 * 9; ++i) {
    attention.kernels.weight.push_back(static_cast<float>(i % 13) - 6);
  }
  return attention;
}

const image::Image kImage = noise_image(1, 32, 48);

TEST(AttentionSheets, OnePlacePerHead) {
  const SheetStyle style{.cell = 96};
  const image::Image all = attention_sheet(kImage, "noise", example(), style);
  // The image, the mean and two heads, each 96 wide with 12 between them.
  EXPECT_EQ((all.width - 12) % 108, 0);
  SheetStyle one = style;
  one.heads = {1};
  const image::Image fewer = attention_sheet(kImage, "noise", example(), one);
  EXPECT_LT(fewer.width * fewer.height, all.width * all.height);
}

TEST(AttentionSheets, StyleChangesTheImage) {
  const SheetStyle plain{.cell = 96};
  const auto sheet = [&](const SheetStyle& style) {
    return attention_sheet(kImage, "noise", example(), style).pixels;
  };
  const auto changed = [&](auto change) {
    SheetStyle style = plain;
    change(style);
    return sheet(style) != sheet(plain);
  };
  EXPECT_TRUE(changed([](SheetStyle& style) { style.opacity = 0.1; }));
  EXPECT_TRUE(changed([](SheetStyle& style) { style.weighted = true; }));
  EXPECT_TRUE(changed([](SheetStyle& style) { style.shared_scale = true; }));
  EXPECT_FALSE(changed([](SheetStyle& style) { style.heads = {0, 1}; }));
}

TEST(AttentionSheets, TheMeanOfTheQueriesIsDrawn) {
  engine::LayerAttention attention = example();
  const SheetStyle style{.cell = 96};
  const auto before = attention_sheet(kImage, "noise", attention, style).pixels;
  // What one query gets and another loses does not show.
  auto& numbers = attention.maps.attention;  // [L, heads, map]
  for (int i = 0; i < 48; ++i) std::swap(numbers[i], numbers[48 + i]);
  EXPECT_EQ(attention_sheet(kImage, "noise", attention, style).pixels, before);
  std::swap(numbers[0], numbers[1]);
  EXPECT_NE(attention_sheet(kImage, "noise", attention, style).pixels, before);
}

TEST(AttentionSheets, Kernels) {
  const image::Image plain = kernel_sheet(kImage, "noise", example(), {});
  const image::Image weighted = kernel_sheet(kImage, "noise", example(), {.weighted = true});
  EXPECT_NE(plain.pixels, weighted.pixels);
  // 18 numbers and 5 lines between the 6 tiles in a row, each 3 * 144 / 18 pixels wide.
  const int64_t cell = 18 * 24 + 5;
  EXPECT_EQ((plain.width - 12) % (cell + 12), 0);
  engine::LayerAttention none = example();
  none.kernels = {};
  testing::expect_complaint([&] { kernel_sheet(kImage, "noise", none, {}); },
                            {"no kernels", "stages.1.blocks.0"});
}

TEST(AttentionSheets, SelfAttentionHasNoWeights) {
  engine::LayerAttention attention = example();
  attention.layer.learned_queries = false;
  attention.maps.weight.clear();
  EXPECT_EQ(attention_sheet(kImage, "noise", attention, {.cell = 96, .weighted = true}).pixels,
            attention_sheet(kImage, "noise", attention, {.cell = 96}).pixels);
}

TEST(AttentionSheets, TheTitleHasThePredictionAndWhatOneMeans) {
  using Lines = std::vector<std::string>;
  engine::LayerAttention attention = example();
  attention.layer.learned_queries = true;
  EXPECT_EQ(
      sheet_title("cat.jpg", attention, {.says = "tabby, 93 %"}),
      (Lines{"cat.jpg   stages.1.blocks.0", "the model says: tabby, 93 %",
             "QnA, 2 queries, 2 heads, map 4 x 6: attention, mean of the queries, summed over "
             "windows",
             "1: as much as each place gets if attention is even; more is brighter"}));
  EXPECT_EQ(sheet_title("cat.jpg", attention, {}, /*kernels=*/true).back(),
            "1: all of a window's attention is at this place");
  EXPECT_EQ(sheet_title("cat.jpg", attention, {.weighted = true}).size(), 2u);
  const int64_t plain = attention_sheet(kImage, "noise", attention, {}).height;
  EXPECT_GT(attention_sheet(kImage, "noise", attention, {.says = "a"}).height, plain);
}

}  // namespace
}  // namespace qna::predict
