#include "qna/viz/contact_sheet.h"

#include <gtest/gtest.h>

#include "qna/base/error.h"
#include "qna/viz/draw.h"

namespace qna::viz {
namespace {

constexpr int64_t kMargin = 12, kCaption = 15, kLine = 13;

std::vector<Captioned> images(int64_t count, int64_t height, int64_t width) {
  std::vector<Captioned> list;
  for (int64_t i = 0; i < count; ++i) {
    list.push_back({blank(height, width, {static_cast<uint8_t>(i), 100, 200}), "p"});
  }
  return list;
}

TEST(ContactSheet, RowByRow) {
  const image::Image sheet = contact_sheet(images(5, 20, 30), {.columns = 3});
  ASSERT_EQ(sheet.width, kMargin + 3 * (30 + kMargin));
  ASSERT_EQ(sheet.height, kMargin + 2 * (kCaption + 20 + kMargin));
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t y = kMargin + kCaption + i / 3 * (kCaption + 20 + kMargin);
    const int64_t x = kMargin + i % 3 * (30 + kMargin);
    for (const auto& [dy, dx] : {std::pair{0, 0}, {19, 29}}) {
      const uint8_t* pixel = sheet.row(y + dy) + 3 * (x + dx);
      EXPECT_EQ(pixel[0], i);
      EXPECT_EQ(pixel[1], 100);
    }
    EXPECT_EQ(sheet.row(y)[3 * (x - 1)], 255);
    EXPECT_EQ(sheet.row(y + 20)[3 * x], 255);
  }
}

TEST(ContactSheet, TitleTakesItsLines) {
  const auto height = [](std::vector<std::string> title) {
    return contact_sheet(images(1, 20, 30), {.title = std::move(title)}).height;
  };
  EXPECT_EQ(height({"one"}), height({}) + kLine + kMargin);
  EXPECT_EQ(height({"one", "two"}), height({"one"}) + kLine);
}

TEST(ContactSheet, ChoosesColumns) {
  for (int64_t count = 1; count <= 40; ++count) {
    const image::Image sheet = contact_sheet(images(count, 100, 150));
    const int64_t columns = (sheet.width - kMargin) / (150 + kMargin);
    const int64_t rows = (sheet.height - kMargin) / (kCaption + 100 + kMargin);
    EXPECT_GE(columns * rows, count);
    EXPECT_LT(columns * (rows - 1), count);  // no empty row
    EXPECT_LT((columns - 1) * rows, count);  // no column that could be spared
    if (count >= 10) {
      const double aspect = static_cast<double>(sheet.width) / static_cast<double>(sheet.height);
      EXPECT_GT(aspect, 0.9) << count;
      EXPECT_LT(aspect, 2.5) << count;
    }
  }
}

TEST(ContactSheet, PlacesAreAsLargeAsTheLargest) {
  std::vector<Captioned> list = images(2, 20, 30);
  list[1].image = blank(50, 10, {});
  const image::Image sheet = contact_sheet(list, {.columns = 2});
  EXPECT_EQ(sheet.width, kMargin + 2 * (30 + kMargin));
  EXPECT_EQ(sheet.height, kMargin + kCaption + 50 + kMargin);
}

TEST(ContactSheet, Mistakes) {
  EXPECT_THROW(contact_sheet({}), Error);
  EXPECT_THROW(contact_sheet(images(1, 2, 2), {.columns = -1}), Error);
  EXPECT_THROW(contact_sheet(std::vector<Captioned>{{image::make_image(2, 2, 1), ""}}), Error);
}

}  // namespace
}  // namespace qna::viz
