#include "qna/report/append_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::report {
namespace {

using testing::complaint_of;
using testing::content_of;

TEST(AppendFile, GrowsAndIsThereAtOnce) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("a");
  {
    AppendFile file(path, AppendFile::Open::kNew);
    EXPECT_EQ(content_of(path), "");
    file.append("one ");
    EXPECT_EQ(content_of(path), "one ");
    file.append("");
    file.append(std::string("t\0o", 3));
    file.sync();
  }
  AppendFile(path, AppendFile::Open::kAppend).append("!");
  EXPECT_EQ(content_of(path), std::string("one t\0o!", 8));
}

TEST(AppendFile, NewMeansNew) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("a");
  AppendFile(path, AppendFile::Open::kNew).append("kept");
  const std::string said = complaint_of([&] { AppendFile(path, AppendFile::Open::kNew); });
  EXPECT_EQ(said, "cannot write " + path + ": File exists");
  EXPECT_EQ(content_of(path), "kept");
}

TEST(AppendFile, MissingFolderIsAnError) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("missing/a");
  EXPECT_EQ(complaint_of([&] { AppendFile(path, AppendFile::Open::kAppend); }),
            "cannot write " + path + ": No such file or directory");
}

// As on a full disk: files may not grow beyond 1000 bytes for a moment.
TEST(AppendFile, TakesAHalfWrittenPieceBack) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("a");
  AppendFile file(path, AppendFile::Open::kNew);
  file.append(std::string(900, 'a'));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = complaint_of([&] { file.append(std::string(200, 'b')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(said, "cannot write " + path + ": File too large");
  EXPECT_EQ(content_of(path), std::string(900, 'a'));
  file.append("c");  // the file goes on after the last whole piece
  EXPECT_EQ(content_of(path), std::string(900, 'a') + "c");
}

}  // namespace
}  // namespace qna::report
