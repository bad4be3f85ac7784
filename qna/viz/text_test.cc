#include "qna/viz/text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "qna/viz/draw.h"

namespace qna::viz {
namespace {

constexpr Color kBlack = {0, 0, 0};
constexpr Color kWhite = {255, 255, 255};

// One line per row, '#' where there is ink.
std::string drawn(std::string_view text, int64_t top = 0, int64_t left = 0, int64_t width = 12) {
  image::Image image = blank(kTextHeight, width, kWhite);
  draw_text(image, top, left, text, kBlack);
  std::string rows;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < width; ++x) rows += image.row(y)[3 * x] == 0 ? '#' : '.';
    rows += '\n';
  }
  return rows;
}

TEST(Text, LettersLookAsTheyShould) {
  EXPECT_EQ(drawn("Qg"),
            "............\n"
            "............\n"
            ".###........\n"
            "#...#.......\n"
            "#...#.......\n"
            "#...#..###..\n"
            "#...#.#...#.\n"
            "#...#.#...#.\n"
            "#...#.#...#.\n"
            "#.#.#..####.\n"
            ".###......#.\n"
            "....#.#...#.\n"
            ".......###..\n");
}

TEST(Text, EveryLetterIsDifferent) {
  std::vector<std::string> all;
  for (char c = ' '; c <= '~'; ++c) all.push_back(drawn(std::string(1, c)));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(Text, BeyondAsciiIsOneQuestionMark) {
  EXPECT_EQ(drawn("\xc3\xa4"), drawn("?"));  // a with two dots
  EXPECT_EQ(drawn("\xe2\x82\xac"
                  "1"),
            drawn("?1"));  // the euro sign
  EXPECT_EQ(drawn("\n"), drawn("?"));
  EXPECT_EQ(text_width("\xc3\xa4"
                       "b"),
            2 * kGlyphWidth);
}

TEST(Text, IsCutOffAtTheEdges) {
  for (const int64_t shift : {-1000, -9, -3, 0, 3, 9, 1000}) {
    drawn("Hg", shift, 0);
    drawn("Hg", 0, shift);
  }
  EXPECT_EQ(drawn("H", 100, 0), drawn(""));
  EXPECT_EQ(drawn("xH", 0, -kGlyphWidth), drawn("H"));
}

TEST(Text, Shorten) {
  EXPECT_EQ(shorten("photograph", 100), "photograph");
  EXPECT_EQ(shorten("photograph", 10 * kGlyphWidth), "photograph");
  EXPECT_EQ(shorten("photograph", 9 * kGlyphWidth), "pho..raph");
  EXPECT_EQ(shorten("photograph", 3 * kGlyphWidth), "..h");
  EXPECT_EQ(shorten("photograph", 2 * kGlyphWidth), "ph");
  EXPECT_EQ(shorten("photograph", -5), "");
}

TEST(Text, GreyImagesToo) {
  image::Image image = image::make_image(kTextHeight, kGlyphWidth, 1);
  draw_text(image, 0, 0, "I", kWhite);
  EXPECT_EQ(std::count(image.pixels.begin(), image.pixels.end(), 255), 13);
}

}  // namespace
}  // namespace qna::viz
