// What stands on the page; tests/report_test.py parses whole pages.
#include "qna/report/training_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/report/html.h"
#include "tests/support/temporary_folder.h"

namespace qna::report {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TrainingReport, EmptyPartsHaveNoPlace) {
  const std::string html = to_html(TrainingReport{.title = "only a title"});
  EXPECT_TRUE(has(html, "<h1>only a title</h1>"));
  for (const char* part : {"<section", "<dl", "<svg", "<img", "<table", "<pre", "<ul"}) {
    EXPECT_FALSE(has(html, part)) << part;
  }
}

TEST(TrainingReport, EveryPart) {
  const std::pair<TrainingReport, std::string> parts[] = {
      {{.summary = {{"Top-1", "93%"}}}, "<dt>Top-1</dt><dd>93%</dd>"},
      {{.charts = {{.title = "Loss"}}}, "aria-label=\"Loss\""},
      {{.confusion = {{"a", "b"}, {1, 2, 3, 4}}}, "a taken for b: 2"},
      {{.samples = {{image::make_image(2, 2, 3), "cat", "dog", 0.5, false}}}, "is cat"},
      {{.attention = {{image::make_image(2, 2, 3), "head 1"}}}, "<figcaption>head 1</figcaption>"},
      {{.recipe = "a = 1\nb = \"<\""}, "<pre>a = 1\nb = &quot;&lt;&quot;</pre>"},
      {{.machine = {{"CPU", "x"}}}, "<dt>CPU</dt><dd>x</dd>"},
      {{.notes = {"a note"}}, "<li>a note</li>"},
  };
  for (const auto& [report, expected] : parts)
    EXPECT_TRUE(has(to_html(report), expected)) << expected;
}

TEST(TrainingReport, Samples) {
  const auto html = [](double confidence, bool right) {
    return to_html(
        TrainingReport{.samples = {{image::make_image(2, 2, 1), "cat", "dog", confidence, right}}});
  };
  EXPECT_TRUE(has(html(0.876, true), "<span class=\"right\">\xe2\x9c\x93 dog</span> 88%"));
  EXPECT_FALSE(has(html(0.876, true), "is cat"));
  EXPECT_TRUE(has(html(0.876, false), "<span class=\"wrong\">\xe2\x9c\x97 dog</span> 88%"));
  EXPECT_FALSE(has(html(std::nan(""), false), "nan"));
}

TEST(TrainingReport, LargeImagesShrink) {
  const TrainingReport report{.samples = {{image::make_image(1000, 500, 3), "a", "a", 1, true},
                                          {image::make_image(1, 5000, 3), "a", "a", 1, true},
                                          {image::make_image(224, 10, 3), "a", "a", 1, true}},
                              .attention = {{image::make_image(500, 2048, 3), "b"}}};
  const std::string html = to_html(report);
  EXPECT_TRUE(has(html, "width=\"112\" height=\"224\""));
  EXPECT_TRUE(has(html, "width=\"224\" height=\"1\""));
  EXPECT_TRUE(has(html, "width=\"10\" height=\"224\""));
  EXPECT_TRUE(has(html, "width=\"1024\" height=\"250\""));
}

TEST(TrainingReport, WritesTheFile) {
  const testing::TemporaryFolder folder;
  const TrainingReport report{.title = "t", .notes = {"n"}};
  write_report(folder.path("report.html"), report);
  EXPECT_EQ(testing::content_of(folder.path("report.html")), to_html(report));
}

TEST(TrainingReport, Mistakes) {
  const auto rejects = [](const TrainingReport& report) { EXPECT_THROW(to_html(report), Error); };
  rejects({.charts = {{.curves = {{"a", {1}, {}}}}}});
  rejects({.confusion = {{"a"}, {}}});
  rejects({.samples = {{{}, "a", "a", 1, true}}});
  rejects({.attention = {{{}, "a"}}});
}

TEST(TrainingReport, SamplesHaveTheirFileNamesAndOpen) {
  const std::string html =
      to_html({.samples = {{image::make_image(2, 2, 3), "cat", "dog", 0.5, false, "a<b.jpg"}}});
  EXPECT_NE(html.find("<span class=\"soft\">a&lt;b.jpg</span>"), std::string::npos);
  EXPECT_NE(html.find("<img class=\"small\" tabindex=\"0\""), std::string::npos);
  EXPECT_NE(html.find("figure img:focus { position: fixed"), std::string::npos);
}

}  // namespace
}  // namespace qna::report
