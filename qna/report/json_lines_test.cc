#include "qna/report/json_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "qna/base/file.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::report {
namespace {

using nlohmann::json;
using testing::complaint_of;
using testing::content_of;

class JsonLinesTest : public ::testing::Test {
 protected:
  // The number of lines removed, and what is left.
  std::pair<int64_t, std::string> truncated(const std::string& content, int64_t step,
                                            const std::string& key = "step") {
    write_file(path, content);
    const int64_t removed = truncate_json_lines(path, key, step);
    return {removed, content_of(path)};
  }

  std::vector<json> read(const std::string& content) {
    write_file(path, content);
    return read_json_lines(path);
  }

  const testing::TemporaryFolder folder;
  const std::string path = folder.path("log.jsonl");
};

using Result = std::pair<int64_t, std::string>;

TEST_F(JsonLinesTest, WritesOneLineEach) {
  JsonLines log(path);
  log.append({{"step", 1}, {"text", "two\nlines \"quoted\""}});
  EXPECT_EQ(content_of(path), "{\"step\":1,\"text\":\"two\\nlines \\\"quoted\\\"\"}\n");
  log.append({{"loss", std::nan("")}, {"rate", std::numeric_limits<double>::infinity()}});
  log.append({{"name", "\xff"}});
  const std::vector<json> read = read_json_lines(path);
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0]["text"], "two\nlines \"quoted\"");
  EXPECT_TRUE(read[1]["loss"].is_null());
  EXPECT_TRUE(read[1]["rate"].is_null());
  EXPECT_EQ(read[2]["name"], "\xef\xbf\xbd");
}

TEST_F(JsonLinesTest, DoublesSurvive) {
  const double values[] = {0.1, 1.0 / 3, 1e-310, -1.7e308, 123456789012345678.0};
  {
    JsonLines log(path);
    for (const double value : values) log.append({{"v", value}});
  }
  const std::vector<json> read = read_json_lines(path);
  for (size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(read[i]["v"].get<double>(), values[i]);
}

TEST_F(JsonLinesTest, OnlyObjects) {
  JsonLines log(path);
  for (const json& value : {json(1), json::array({1}), json(nullptr), json("a")}) {
    EXPECT_NE(complaint_of([&] { log.append(value); }), "");
  }
  EXPECT_EQ(content_of(path), "");
}

// Killed at any byte of the last line.
TEST_F(JsonLinesTest, EveryHalfWrittenEnd) {
  const std::string first = "{\"step\":1}\n", second = "{\"step\":2,\"a\":{\"b\":\"}\"}}\n";
  for (size_t size = 0; size <= second.size(); ++size) {
    const bool whole = size + 1 >= second.size();  // the newline alone may be missing
    const std::string content = first + second.substr(0, size);
    EXPECT_EQ(read(content).size(), whole ? 2u : 1u) << size;

    JsonLines(path).append({{"step", 3}});
    EXPECT_EQ(content_of(path), first + (whole ? second : "") + "{\"step\":3}\n") << size;

    EXPECT_EQ(truncated(content, 2), Result(0, first + (whole ? second : ""))) << size;
    EXPECT_EQ(truncated(content, 1), Result(whole ? 1 : 0, first)) << size;
  }
}

TEST_F(JsonLinesTest, StrictOnAnythingElse) {
  for (const std::string bad : {"\n", "{\"a\":1\n", "1\n", "[]\n", "{} {}\n", "{}x\n", "null\n",
                                "{\"a\":\xff\"}\n", "{'a':1}\n", "{\"a\":NaN}\n"}) {
    const std::string said = complaint_of([&] { read("{}\n" + bad + "{}\n"); });
    EXPECT_NE(said.find(path + ": line 2 must be one JSON object"), std::string::npos) << said;
    EXPECT_EQ(complaint_of([&] { truncated("{}\n" + bad + "{}\n", 1); }), said);
    EXPECT_EQ(content_of(path), "{}\n" + bad + "{}\n");  // untouched
  }
}

TEST_F(JsonLinesTest, EmptyAndMissing) {
  EXPECT_EQ(read("").size(), 0u);
  EXPECT_EQ(truncated("", 5), Result(0, ""));
  std::filesystem::remove(path);
  EXPECT_EQ(complaint_of([&] { read_json_lines(path); }),
            "cannot read " + path + ": No such file or directory");
  EXPECT_EQ(truncate_json_lines(path, "step", 1), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_NE(complaint_of([&] { read_json_lines(folder.folder().string()); }), "");
}

TEST_F(JsonLinesTest, TruncatesByStep) {
  const std::string lines = "{\"step\": 10}\n{\"step\": 20}\n{\"step\":30}\n";  // spaces are kept
  EXPECT_EQ(truncated(lines, 9), Result(3, ""));
  EXPECT_EQ(truncated(lines, 10), Result(2, "{\"step\": 10}\n"));
  EXPECT_EQ(truncated(lines, 29), Result(1, "{\"step\": 10}\n{\"step\": 20}\n"));
  EXPECT_EQ(truncated(lines, 30), Result(0, lines));
  EXPECT_EQ(truncated(lines, -1), Result(3, ""));
  EXPECT_EQ(truncated(lines, 5, "epoch"), Result(0, lines));
}

TEST_F(JsonLinesTest, NumbersOfAllKinds) {
  const auto kept = [&](const std::string& number, int64_t step) {
    return truncated("{\"step\":" + number + "}\n", step).first == 0;
  };
  EXPECT_TRUE(kept("1.5", 2));
  EXPECT_FALSE(kept("1.5", 1));
  EXPECT_TRUE(kept("-3", -3));
  EXPECT_FALSE(kept("-3", -4));
  EXPECT_FALSE(kept("0", -1));
  EXPECT_TRUE(kept("9223372036854775807", INT64_MAX));
  EXPECT_FALSE(kept("9223372036854775807", INT64_MAX - 1));
  EXPECT_FALSE(kept("9223372036854775808", INT64_MAX));
}

TEST_F(JsonLinesTest, LinesWithoutTheKeyGoWithTheLineBefore) {
  EXPECT_EQ(truncated("{\"h\":1}\n{\"step\":1}\n{\"n\":1}\n{\"step\":3}\n{\"n\":3}\n", 2),
            Result(2, "{\"h\":1}\n{\"step\":1}\n{\"n\":1}\n"));
  // A log that went back once already.
  EXPECT_EQ(truncated("{\"step\":3}\n{\"step\":1}\n{\"n\":1}\n", 2),
            Result(1, "{\"step\":1}\n{\"n\":1}\n"));
}

TEST_F(JsonLinesTest, KeyThatIsNoNumber) {
  EXPECT_EQ(complaint_of([&] { truncated("{\"step\":\"a\"}\n", 1); }),
            path + ": line 1: step must be a number, got string");
}

}  // namespace
}  // namespace qna::report
