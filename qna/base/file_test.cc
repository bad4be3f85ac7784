// Files are whole or absent, and nothing else is left behind.
#include "qna/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "qna/base/error.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return temporary.path(name); }

  static std::string content(const std::string& path) { return testing::content_of(path); }

  // Names of all that is in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& entry : fs::directory_iterator(folder)) {
      list.push_back(entry.path().filename().string());
    }
    std::sort(list.begin(), list.end());
    return list;
  }

  static std::string complaint(const std::string& path, std::string_view content) {
    return testing::complaint_of([&] { write_file(path, content); });
  }

  const testing::TemporaryFolder temporary;
  const fs::path& folder = temporary.folder();
};

using Names = std::vector<std::string>;

TEST_F(WriteFile, WritesAllBytes) {
  std::string bytes;
  for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i * 7 % 256);  // zeros, newlines, all
  write_file(path("a"), bytes);
  EXPECT_EQ(content(path("a")), bytes);
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(WriteFile, IsReadAsItWasWritten) {
  const std::string bytes("zero \0, newline \r\n and \xff", 24);
  write_file(path("a.bin"), bytes);
  EXPECT_EQ(read_file(path("a.bin")), bytes);
  write_file(path("a.bin"), "");
  EXPECT_EQ(read_file(path("a.bin")), "");
  EXPECT_EQ(testing::complaint_of([&] { read_file(path("b.bin")); }),
            "cannot read " + path("b.bin") + ": No such file or directory; did you mean '" +
                path("a.bin") + "'?");
  EXPECT_EQ(testing::complaint_of([&] { read_file(folder.string()); }),
            "cannot read " + folder.string() + ": it is a folder");
}

TEST_F(WriteFile, WritesNothing) {
  write_file(path("empty"), "");
  EXPECT_TRUE(fs::exists(path("empty")));
  EXPECT_EQ(content(path("empty")), "");
  EXPECT_EQ(names(), Names{"empty"});
}

TEST_F(WriteFile, Replaces) {
  write_file(path("a"), "a long first content");
  write_file(path("a"), "short");
  EXPECT_EQ(content(path("a")), "short");
  EXPECT_EQ(names(), Names{"a"});
}

// A reader that has the old file open keeps it whole: the new one is another file.
TEST_F(WriteFile, ReplacesByRenaming) {
  write_file(path("a"), "old");
  std::ifstream reader(path("a"));
  write_file(path("a"), "new");
  std::string seen;
  reader >> seen;
  EXPECT_EQ(seen, "old");
}

TEST_F(WriteFile, MissingFolderIsAnErrorThatNamesThePath) {
  const std::string said = complaint(path("missing/a.csv"), "x");
  EXPECT_NE(said.find(path("missing/a.csv")), std::string::npos) << said;
  EXPECT_NE(said.find("No such file or directory"), std::string::npos) << said;
  EXPECT_EQ(names(), Names{});
}

TEST_F(WriteFile, CheckingLeavesNothingBehind) {
  check_writable(path("a.csv"));
  EXPECT_EQ(names(), Names{});
  write_file(path("a.csv"), "x");
  check_writable(path("a.csv"));
  EXPECT_EQ(names(), Names{"a.csv"});
  EXPECT_EQ(content(path("a.csv")), "x");
  EXPECT_THROW(check_writable(path("missing/a.csv")), Error);
}

TEST_F(WriteFile, FolderInTheWayIsAnError) {
  fs::create_directory(path("a"));
  std::ofstream(path("a/inside")) << "kept";
  const std::string said = complaint(path("a"), "x");
  EXPECT_NE(said.find(path("a")), std::string::npos) << said;
  EXPECT_EQ(names(), Names{"a"});  // no temporary
  EXPECT_EQ(content(path("a/inside")), "kept");
}

TEST_F(WriteFile, TargetIsUnchangedOnFailure) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  write_file(path("a"), "old");
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string said = complaint(path("a"), "new");
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_NE(said.find(path("a")), std::string::npos) << said;
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(names(), Names{"a"});
}

// A write that fails half-way, as on a full disk: files may not grow beyond 1000 bytes for a
// moment.
TEST_F(WriteFile, HalfWrittenFileDoesNotReplaceTheTarget) {
  write_file(path("a"), "old");
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = complaint(path("a"), std::string(5000, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(said.find("cannot write " + path("a")), std::string::npos) << said;
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(names(), Names{"a"});
}

// Two threads that write the same file at once: one of the two wins, nobody fails.
TEST_F(WriteFile, ConcurrentWritersLeaveOneWholeFile) {
  const std::string contents[] = {std::string(100000, 'x'), std::string(70000, 'y')};
  for (int round = 0; round < 20; ++round) {
    std::string errors[2];
    {
      std::jthread first([&] { errors[0] = complaint(path("a"), contents[0]); });
      std::jthread second([&] { errors[1] = complaint(path("a"), contents[1]); });
    }
    EXPECT_EQ(errors[0], "");
    EXPECT_EQ(errors[1], "");
    const std::string seen = content(path("a"));
    ASSERT_TRUE(seen == contents[0] || seen == contents[1]) << "a mixture of both";
    ASSERT_EQ(names(), Names{"a"});
  }
}

TEST_F(WriteFile, LeftoversOfKilledProcessesAreRemoved) {
  const Names others = {".1.2.part", "a", "b.part", "c.12.part", "d.x.1.part", "e.1..part"};
  for (const std::string& name : others) write_file(path(name.c_str()), "whole");
  for (const char* name : {"a.123.0.part", "run.json.7.15.part"}) write_file(path(name), "half");
  remove_leftovers(folder.string());
  EXPECT_EQ(names(), others);
  remove_leftovers(path("missing"));  // nothing to remove
}

TEST_F(WriteFile, PiecesBecomeOneFile) {
  AtomicFile file(path("a"));
  file.write("one ");
  file.write("");
  file.write("two");
  EXPECT_FALSE(fs::exists(path("a")));  // not before it is whole
  file.commit();
  EXPECT_EQ(content(path("a")), "one two");
  EXPECT_EQ(names(), Names{"a"});
}

// As when the code that makes the second piece throws.
TEST_F(WriteFile, PiecesWithoutCommitLeaveNothing) {
  write_file(path("a"), "old");
  { AtomicFile(path("a")).write("half"); }
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(WriteFile, AFolderIsLockedByOne) {
  FolderLock second;
  {
    FolderLock first;
    EXPECT_TRUE(first.take(path("")));
    EXPECT_TRUE(first.take(path("")));  // again
    EXPECT_FALSE(second.take(path("")));
  }
  EXPECT_TRUE(second.take(path("")));
}

}  // namespace
}  // namespace qna
