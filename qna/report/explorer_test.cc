#include "qna/report/explorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "qna/base/error.h"
#include "qna/report/explorer_testonly.h"
#include "qna/report/text_testonly.h"

namespace qna::report {
namespace {

using nlohmann::json;

ExplorerLayer window_layer(const std::string& name, int64_t side, float scale) {
  ExplorerWindows windows{.queries = 2, .kernel = {3, 3}, .padding = {1, 1}};
  windows.windows = {side, side};
  for (int64_t i = 0; i < side * side * 2 * 4; ++i) {
    windows.scores.push_back(scale * std::sin(static_cast<float>(i)) + static_cast<float>(i % 8));
  }
  windows.bias.assign(9 * 2 * 4, 0.5f);
  return {.name = name,
          .stride = 4,
          .height = side,
          .width = side,
          .heads = 4,
          .attention = std::move(windows)};
}

Explorer explorer_with(std::vector<ExplorerLayer> layers) {
  return {.name = "cat.jpg",
          .image = image::make_image(32, 48, 3),
          .seen = {32, 48},
          .classes = {{"cat", 0.75}, {"dog", 0.25}},
          .layers = std::move(layers)};
}

const std::vector<float>& scores_of(const Explorer& explorer, size_t layer) {
  return std::get<ExplorerWindows>(explorer.layers[layer].attention).scores;
}

float largest_error(const json& packed, const std::vector<float>& numbers) {
  const std::vector<float> found = unpacked(packed);
  EXPECT_EQ(found.size(), numbers.size());
  float error = 0;
  for (size_t i = 0; i < numbers.size(); ++i)
    error = std::max(error, std::abs(found[i] - numbers[i]));
  return error;
}

TEST(ExplorerPage, HoldsItsNumbers) {
  const Explorer explorer = explorer_with({window_layer("a", 6, 3.0f), window_layer("b", 2, 0.0f)});
  const json data = explorer_data(explorer_page(explorer));
  EXPECT_EQ(data["seen"], json({32, 48}));
  EXPECT_EQ(data["classes"][1]["name"], "dog");
  EXPECT_EQ(data["classes"][0]["probability"], 0.75);
  EXPECT_TRUE(data["decoder"].is_null());
  ASSERT_EQ(data["layers"].size(), 2u);
  const json& layer = data["layers"][0];
  EXPECT_EQ(layer["name"], "a");
  EXPECT_EQ(layer["kind"], "windows");
  EXPECT_EQ(layer["kernel"], json({3, 3}));
  EXPECT_EQ(layer["scores"]["type"], "uint16");
  // Half a step of the range, 6, and rounding.
  EXPECT_LT(largest_error(layer["scores"], scores_of(explorer, 0)), 0.51f * 6 / 65535 + 1e-6f);
  EXPECT_EQ(largest_error(data["layers"][1]["scores"], scores_of(explorer, 1)), 0);
  EXPECT_EQ(unpacked(layer["bias"]), std::vector<float>(72, 0.5f));
  EXPECT_TRUE(unpacked(layer["scale"]).empty());
  EXPECT_EQ(numbers_of_base64<uint8_t>(data["palette"]).size(), 768u);
}

// 16 bits would round them so much that it could be seen.
TEST(ExplorerPage, LargeScoresStayAsTheyAre) {
  const Explorer explorer = explorer_with({window_layer("a", 6, 1e6f)});
  const json data = explorer_data(explorer_page(explorer));
  EXPECT_EQ(data["layers"][0]["scores"]["type"], "float32");
  EXPECT_EQ(unpacked(data["layers"][0]["scores"]), scores_of(explorer, 0));
}

TEST(ExplorerPage, ScoresThatAreNoNumbers) {
  Explorer explorer = explorer_with({window_layer("stages.1.blocks.0", 6, 1.0f)});
  std::get<ExplorerWindows>(explorer.layers[0].attention).scores[7] =
      std::numeric_limits<float>::quiet_NaN();
  try {
    explorer_page(explorer);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("stages.1.blocks.0"), std::string::npos);
  }
}

TEST(ExplorerPage, TheLargestLayersAreLeftOutAndSaidToBe) {
  const Explorer explorer =
      explorer_with({window_layer("largest", 600, 1.0f), window_layer("small", 6, 1.0f),
                     window_layer("large", 400, 1.0f)});
  const std::string page = explorer_page(explorer);
  EXPECT_LE(page.size(), kExplorerBytes);
  const json data = explorer_data(page);
  ASSERT_EQ(data["layers"].size(), 2u);
  EXPECT_EQ(data["layers"][0]["name"], "small");
  EXPECT_EQ(data["layers"][1]["name"], "large");
  ASSERT_EQ(data["notes"].size(), 1u);
  EXPECT_NE(data["notes"][0].get<std::string>().find(": largest."), std::string::npos);
}

TEST(ExplorerPage, NothingIsLeftOutInSilence) {
  Explorer explorer = explorer_with({});
  ExplorerDecoder decoder{.height = 1000, .width = 1000};
  decoder.boxes.push_back({.name = "cat", .score = 1, .box = {0, 0, 1, 1}, .attention = {}});
  decoder.boxes[0].attention.resize(1000 * 1000);
  explorer.decoder.push_back(decoder);
  EXPECT_THROW(explorer_page(explorer), Error);
}

TEST(ExplorerPage, LargeImagesAreShrunk) {
  Explorer explorer = explorer_with({});
  explorer.image = image::make_image(3000, 1500, 3);
  EXPECT_EQ(count(explorer_page(explorer), "width=\"384\" height=\"768\""), 1);
}

// Only the page's own script can run, and nothing is loaded.
TEST(ExplorerPage, HostileTextStaysText) {
  const std::string evil =
      "</script><script>alert(1)</script>&amp;]]>\x01\xff\xef\xbf\xbf\"'{data}";
  Explorer explorer = explorer_with({window_layer(evil, 2, 1.0f)});
  explorer.name = evil;
  explorer.classes = {{evil, 1}};
  explorer.notes = {evil};
  const std::string page = explorer_page(explorer);
  EXPECT_EQ(count(page, "alert(1)"), 7);  // title, heading, alt; name, layer, class, note
  EXPECT_EQ(count(page, "<script>alert"), 0);
  EXPECT_EQ(count(page, "</script>"), 2);
  EXPECT_EQ(count(page, "script-src 'sha256-"), 1);
  const json data = explorer_data(page);
  EXPECT_EQ(data["layers"][0]["name"].get<std::string>().substr(0, 34),
            "</script><script>alert(1)</script>");
}

}  // namespace
}  // namespace qna::report
