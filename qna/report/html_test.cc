#include "qna/report/html.h"

#include <gtest/gtest.h>

#include "qna/base/error.h"
#include "qna/image/write_png.h"

namespace qna::report {
namespace {

const std::string kReplacement = "\xef\xbf\xbd";

TEST(Escape, Markup) {
  EXPECT_EQ(escape("<script>alert(\"1\" & '2')</script>"),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  EXPECT_EQ(escape("&amp;"), "&amp;amp;");
  EXPECT_EQ(escape(""), "");
}

TEST(Escape, KeepsText) {
  const std::string text = "plain 1.5 \xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\x88\t\r\n";
  EXPECT_EQ(escape(text), text);
}

TEST(Escape, EveryControlCharacter) {
  for (int c = 0; c < 0x20; ++c) {
    const std::string text(1, static_cast<char>(c));
    const bool allowed = c == '\t' || c == '\n' || c == '\r';
    EXPECT_EQ(escape(text), allowed ? text : kReplacement) << c;
  }
}

TEST(Escape, WhatIsNotUtf8) {
  EXPECT_EQ(escape("a\xff"
                   "b"),
            "a" + kReplacement + "b");
  EXPECT_EQ(escape("\xc3"), kReplacement);
  // "<" in more bytes than it needs must not come out as "<".
  EXPECT_EQ(escape("\xc0\xbc").find('<'), std::string::npos);
  EXPECT_EQ(escape("\xed\xa0\x80").find("\xed"), std::string::npos);  // half of a surrogate pair
  EXPECT_EQ(escape("\xef\xbf\xbe"), kReplacement);                    // U+FFFE
  EXPECT_EQ(escape("x\xef\xbf\xbf"), "x" + kReplacement);             // U+FFFF
  EXPECT_EQ(escape("\xef\xbf\xbc"), "\xef\xbf\xbc");                  // U+FFFC is allowed
}

TEST(Base64, VectorsOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xfb\xff\xbf"), "+/+/");
  EXPECT_EQ(base64(std::string(3, '\0')), "AAAA");
}

TEST(ImageTag, HoldsThePng) {
  const image::Image image = image::make_image(3, 5, 3);
  const std::string tag = image_tag(image, "a \"cat\"");
  EXPECT_NE(
      tag.find("src=\"data:image/png;base64," + base64(image::encode_png(image, "test")) + "\""),
      std::string::npos);
  EXPECT_NE(tag.find("width=\"5\" height=\"3\" alt=\"a &quot;cat&quot;\""), std::string::npos);
  EXPECT_THROW(image_tag({}, ""), Error);
}

TEST(Page, NeedsNothingFromOutside) {
  const std::string html = page("a < b", "<p>body</p>");
  EXPECT_NE(html.find("<title>a &lt; b</title>"), std::string::npos);
  EXPECT_NE(html.find("<p>body</p>"), std::string::npos);
  for (const char* outside : {"http://", "https://", "<script", "<link", "url(", "@import"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(html.find("<!DOCTYPE html>"), 0u);
}

}  // namespace
}  // namespace qna::report
