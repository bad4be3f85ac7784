#include "qna/report/confusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "qna/base/error.h"
#include "qna/report/text_testonly.h"
#include "tests/support/hostile.h"

namespace qna::report {
namespace {

using testing::complaint_of;

Confusion confusion_of(size_t classes) {
  Confusion confusion;
  for (size_t i = 0; i < classes; ++i) confusion.classes.push_back(fmt::format("c{}", i));
  for (size_t i = 0; i < classes * classes; ++i) {
    confusion.counts.push_back(static_cast<int64_t>(i * 7919 % 101));
  }
  return confusion;
}

TEST(Confusion, RowsAreTrueColumnsPredicted) {
  const std::string html = to_html(Confusion{{"cat", "dog"}, {6, 2, 0, 5}});
  const size_t cat = html.find("scope=\"row\" title=\"cat\""),
               dog = html.find("scope=\"row\" title=\"dog\"");
  ASSERT_NE(cat, std::string::npos);
  ASSERT_LT(cat, dog);
  const size_t right = html.find(">6</td>"), wrong = html.find(">2</td>"),
               other = html.find(">5</td>");
  EXPECT_TRUE(cat < right && right < wrong && wrong < dog && dog < other);
  EXPECT_NE(html.find("cat taken for dog: 2 (25.0%)"), std::string::npos);
  EXPECT_NE(html.find(">75.0%</td>"), std::string::npos);
  EXPECT_NE(html.find(">100.0%</td>"), std::string::npos);
  EXPECT_NE(html.find("rgba(var(--shade), 0.675)"), std::string::npos);  // 0.9 * 6 / 8
  EXPECT_NE(html.find("rgba(var(--miss), 0.450)"), std::string::npos);   // 0.9 * sqrt(2 / 8)
}

TEST(Confusion, EveryNumberOfClasses) {
  for (size_t classes = 1; classes <= 100; ++classes) {
    const std::string html = to_html(confusion_of(classes));
    if (classes <= 30) {
      EXPECT_EQ(count(html, "scope=\"row\""), static_cast<int64_t>(classes));
      EXPECT_EQ(count(html, "<td"), static_cast<int64_t>(classes * (classes + 1)));
    } else {
      EXPECT_EQ(count(html, "<tr>"), 31) << classes;  // thirty pairs and the heading
      EXPECT_EQ(count(html, "scope=\"row\""), 0);
    }
  }
}

TEST(Confusion, MostConfused) {
  const Confusion confusion = confusion_of(40);
  const std::vector<ConfusedPair> pairs = most_confused(confusion, 50);
  ASSERT_EQ(pairs.size(), 50u);
  // Against the definition: no pair that is left out comes before the last one of the list.
  const ConfusedPair& last = pairs.back();
  int64_t before = 0;
  for (size_t i = 0; i < 40; ++i) {
    for (size_t k = 0; k < 40; ++k) {
      const int64_t times = confusion.at(i, k);
      const bool earlier =
          times > last.count ||
          (times == last.count && std::pair(i, k) <= std::pair(last.truth, last.predicted));
      if (i != k && earlier) ++before;
    }
  }
  EXPECT_EQ(before, 50);
  for (size_t n = 0; n + 1 < pairs.size(); ++n) EXPECT_GE(pairs[n].count, pairs[n + 1].count);
  for (const ConfusedPair& pair : pairs) {
    EXPECT_EQ(pair.count, confusion.at(pair.truth, pair.predicted));
    double sum = 0;
    for (size_t k = 0; k < 40; ++k) sum += static_cast<double>(confusion.at(pair.truth, k));
    EXPECT_DOUBLE_EQ(pair.share, static_cast<double>(pair.count) / sum);
  }
}

TEST(Confusion, NothingConfusedNothingSeen) {
  Confusion confusion = confusion_of(31);
  std::fill(confusion.counts.begin(), confusion.counts.end(), 0);
  EXPECT_EQ(most_confused(confusion).size(), 0u);
  EXPECT_NE(to_html(confusion).find("No two classes were confused"), std::string::npos);
  const std::string empty = to_html(Confusion{{"a", "b"}, {0, 0, 0, 0}});
  EXPECT_EQ(empty.find("nan"), std::string::npos);
  EXPECT_EQ(count(empty, "class=\"none\""), 4);
}

TEST(Confusion, HostileNames) {
  const std::string html = to_html(Confusion{{"<script>", "\"'&"}, {1, 1, 1, INT64_MAX}});
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt; taken for &quot;&#39;&amp;: 1"), std::string::npos);
  EXPECT_NE(html.find("9223372036854775807"), std::string::npos);
}

TEST(Confusion, Mistakes) {
  EXPECT_EQ(complaint_of([] { to_html(Confusion{}); }),
            "Confusion: classes must not be empty, got 0");
  EXPECT_EQ(complaint_of([] {
              to_html(Confusion{{"a", "b"}, {1, 2, 3}});
            }),
            "Confusion: counts must be 2 x 2 numbers, got 3");
  EXPECT_EQ(complaint_of([] {
              most_confused(Confusion{{"a"}, {-1}});
            }),
            "Confusion: counts must not be negative, got -1");
}

}  // namespace
}  // namespace qna::report
