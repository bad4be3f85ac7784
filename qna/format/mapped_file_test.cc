#include "qna/format/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "qna/base/file.h"
#include "tests/support/hostile.h"
#include "tests/support/temporary_folder.h"

namespace qna::format {
namespace {

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HasTheBytesOfTheFile) {
  const testing::TemporaryFolder temporary;
  write_file(temporary.path("a"), "content");
  write_file(temporary.path("empty"), "");
  EXPECT_EQ(text_of(*MappedFile::open(temporary.path("a"))), "content");
  EXPECT_EQ(text_of(*MappedFile::open(temporary.path("empty"))), "");
}

// A checkpoint may be written over the one it was read from.
TEST(MappedFile, KeepsItsBytesWhenTheFileIsReplaced) {
  const testing::TemporaryFolder temporary;
  write_file(temporary.path("a"), "old content");
  const auto file = MappedFile::open(temporary.path("a"));
  write_file(temporary.path("a"), "new");
  EXPECT_EQ(text_of(*file), "old content");
  std::filesystem::remove(temporary.path("a"));
  EXPECT_EQ(text_of(*file), "old content");
}

TEST(MappedFile, WhatCannotBeReadIsAnErrorThatNamesIt) {
  const testing::TemporaryFolder temporary;
  const auto complaint = [&](const char* name) {
    return testing::complaint_of([&] { MappedFile::open(temporary.path(name)); });
  };
  EXPECT_EQ(complaint("missing"),
            "cannot read " + temporary.path("missing") + ": No such file or directory");
  ASSERT_EQ(::mkfifo(temporary.path("pipe").c_str(), 0600), 0);
  for (const char* name : {"", "pipe"}) {  // the folder itself, and a pipe nobody writes to
    EXPECT_EQ(complaint(name),
              "cannot read " + temporary.path(name) + ": it is not a regular file");
  }
}

}  // namespace
}  // namespace qna::format
