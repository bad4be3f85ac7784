#include "qna/report/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "qna/report/event_record.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::report {
namespace {

using testing::complaint_of;
using testing::content_of;

// The data of every record; stops the test at a broken one.
std::vector<std::string> records_of(const std::string& path) {
  const std::string content = content_of(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < content.size();) {
    uint64_t size = 0;
    std::memcpy(&size, content.data() + at, 8);
    const std::string data = content.substr(at + 12, size);
    if (content.substr(at, size + 16) != event_record(data)) throw std::runtime_error("broken");
    records.push_back(data);
    at += size + 16;
  }
  return records;
}

TEST(EventFile, NameAndFirstRecord) {
  const testing::TemporaryFolder folder;
  const EventFile file(folder.path("a/b"));  // both are made
  const std::filesystem::path path = file.path();
  EXPECT_EQ(path.parent_path(), folder.path("a/b"));
  const std::regex pattern(R"(events\.out\.tfevents\.\d{10}\.[-.\w]+\.(\d+)\.qna)");
  std::smatch match;
  const std::string name = path.filename().string();
  ASSERT_TRUE(std::regex_match(name, match, pattern)) << name;
  EXPECT_EQ(match[1], std::to_string(::getpid()));
  const std::vector<std::string> records = records_of(file.path());
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
}

// Also within one second.
TEST(EventFile, EveryOneIsNewAndLaterInOrder) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int64_t i = 0; i < 3; ++i) {
    EventFile file(folder.path("run"), i);
    file.scalar("a", i, 1);
    paths.push_back(file.path());
    EXPECT_EQ(records_of(file.path()).size(), 3u);  // version, start, scalar
  }
  EXPECT_LT(paths[0], paths[1]);
  EXPECT_LT(paths[1], paths[2]);
}

TEST(EventFile, EventsAreThereAtOnce) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path("run"));
  file.scalar("loss", 3, 0.1);
  ASSERT_EQ(records_of(file.path()).size(), 2u);
  // All but the time, of which the bytes' number is fixed.
  EXPECT_EQ(records_of(file.path())[1].substr(9), scalar_event({0, 3}, "loss", 0.1f).substr(9));
  file.text("note", 4, "hi");
  EXPECT_EQ(records_of(file.path())[2].substr(9), text_event({0, 4}, "note", "hi").substr(9));
  file.image("picture", 5, image::make_image(2, 3, 3));
  const std::string record = records_of(file.path())[3];
  EXPECT_NE(record.find("\x08\x02\x10\x03\x18\x03"), std::string::npos);  // 2 x 3, RGB
  EXPECT_NE(record.find("\x89PNG\r\n"), std::string::npos);
  file.flush();
}

// Protocol buffers reject strings that are not UTF-8, and with them the whole event.
TEST(EventFile, TextIsMadeValid) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path("run"));
  file.text("a\xff", 0, "b\xfe");
  EXPECT_EQ(records_of(file.path())[1].substr(9),
            text_event({0, 0}, "a\xef\xbf\xbd", "b\xef\xbf\xbd").substr(9));
}

TEST(EventFile, Mistakes) {
  const testing::TemporaryFolder folder;
  EventFile file(folder.path("run"));
  EXPECT_EQ(complaint_of([&] { file.scalar("", 0, 0); }),
            "EventFile: tag must not be empty, got ''");
  EXPECT_NE(complaint_of([&] { file.image("a", 0, {}); }), "");
  EXPECT_EQ(records_of(file.path()).size(), 1u);
  AppendFile(folder.path("file"), AppendFile::Open::kNew);
  const std::string said = complaint_of([&] { EventFile(folder.path("file/run")); });
  EXPECT_NE(said.find(folder.path("file/run")), std::string::npos) << said;
}

}  // namespace
}  // namespace qna::report
