#include "qna/data/tar_dataset.h"

#include <filesystem>

#include "qna/data/dataset_testonly.h"
#include "tests/support/temporary_folder.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using ::qna::testing::TemporaryFolder;

class TarDatasetTest : public ::testing::Test {
 protected:
  std::string complaint_of(const Members& members, const TarOptions& options = {}) {
    write_tar(tar(), members);
    return complaint([&] { TarDataset(tar(), options); });
  }
  std::string tar() const { return folder_.path("d.tar"); }

  const TemporaryFolder folder_;
};

TEST_F(TarDatasetTest, FindsTheClassesInEveryCompression) {
  const Members members = {{"./", ""},
                           {"./dog/", ""},
                           {"./dog/b.PNG", png(4)},
                           {"dog//a.png", png(3)},
                           {"cat/deep/er/x.png", png(1)},  // without entries for its folders
                           {"/cat/y.png", png(2)},
                           {"README.txt", "text"},
                           {"dog/notes.txt", "text"},
                           {"dog/._b.png", "what macOS writes"},
                           {"top.png", png(9)},
                           {".git/x.png", png(9)}};
  for (const char* compression : {"", "gzip", "bzip2", "xz", "zstd"}) {
    SCOPED_TRACE(compression);
    write_tar(tar(), members, compression);
    const TarDataset dataset(tar());
    EXPECT_EQ(dataset.classes(), (Names{"cat", "dog"}));
    EXPECT_EQ(content_of(dataset), (Content{{1, 0}, {2, 0}, {3, 1}, {4, 1}}));
    EXPECT_EQ(dataset.name(0), tar() + ":cat/deep/er/x.png");
    EXPECT_EQ(dataset.read(0, 1).channels, 1);
    EXPECT_THROW(dataset.read(4, 3), Error);
    EXPECT_THROW(dataset.label(-1), Error);
    EXPECT_EQ(tar_folders(tar()), (std::set<std::string>{"cat", "cat/deep", "cat/deep/er", "dog"}));
  }
}

TEST_F(TarDatasetTest, OnlyTheFolderAskedFor) {
  write_tar(tar(), {{"set/train/a/1.png", png(1)},
                    {"set/val/a/2.png", png(2)},
                    {"set/train/b/3.png", png(3)},
                    {"set/training/c/4.png", png(4)}});
  const TarDataset dataset(tar(), {.folder = "set/train"});
  EXPECT_EQ(content_of(dataset), (Content{{1, 0}, {3, 1}}));
  EXPECT_EQ(dataset.name(1), tar() + ":set/train/b/3.png");
  const TarDataset named(tar(), {.folder = "set/val", .class_names = {"b", "a"}});
  EXPECT_EQ(content_of(named), (Content{{2, 1}}));
  EXPECT_TRUE(contains(complaint([&] { TarDataset(tar(), {.folder = "set/test"}); }),
                       ":set/test: there are no folders of pictures in it"));
  EXPECT_TRUE(
      contains(complaint([&] { TarDataset(tar(), {.folder = "set/train", .class_names = {"a"}}); }),
               "'b' is not among"));
}

TEST_F(TarDatasetTest, NamesThatNeedPaxHeaders) {
  const std::string length(200, 'n');
  write_tar(tar(), {{"\xc3\xa4pfel/" + length + "/1.png", png(1)}, {"birnen/2.png", png(2)}});
  const TarDataset dataset(tar());
  EXPECT_EQ(dataset.classes(), (Names{"birnen", "\xc3\xa4pfel"}));
  EXPECT_EQ(content_of(dataset), (Content{{2, 0}, {1, 1}}));
}

TEST_F(TarDatasetTest, TheLastOfTwoMembersCounts) {
  write_tar(tar(), {{"a/1.png", png(1)}, {"a/2.png", png(2)}, {"a/1.png", png(3)}});
  EXPECT_EQ(content_of(TarDataset(tar())), (Content{{3, 0}, {2, 0}}));
}

TEST_F(TarDatasetTest, Layouts) {
  EXPECT_TRUE(contains(complaint_of({{"a.png", png(1)}}), "the pictures lie directly in it"));
  EXPECT_TRUE(contains(complaint_of({{"a.txt", "text"}}), "there are no folders of pictures"));
  EXPECT_TRUE(contains(complaint_of({{"a/1.png", png(1)}, {"b/", ""}, {"b/c/", ""}}),
                       "the class 'b' has no picture"));
  EXPECT_EQ(complaint_of({{"a/1.png", png(1)}, {"b/c/", ""}, {"b/c/2.png", png(1)}}), "");
}

TEST_F(TarDatasetTest, LinksAndPathTricks) {
  EXPECT_TRUE(contains(complaint_of({{"a/1.png", png(1)}, {">a/2.png", "1.png"}}),
                       ":a/2.png: this is a link"));
  EXPECT_TRUE(contains(complaint_of({{"a/1.png", png(1)}, {"=a/2.png", "a/1.png"}}),
                       ":a/2.png: this is a link"));
  EXPECT_EQ(complaint_of({{"a/1.png", png(1)}, {">a/readme", "/etc/passwd"}}), "");
  const std::string outside = folder_.path("outside.png");
  EXPECT_TRUE(contains(complaint_of({{"a/../../outside.png", png(1)}}), "must not have '..'"));
  EXPECT_EQ(complaint_of({{outside, png(1)}}), "");  // a member like others
  EXPECT_FALSE(std::filesystem::exists(outside));
}

TEST_F(TarDatasetTest, TheBudgetHoldsWhateverIsClaimed) {
  const std::string large(100000, 'x');
  EXPECT_EQ(complaint_of({{"a/1.png", large}}, {.max_bytes = 200000}), "");
  EXPECT_TRUE(
      contains(complaint_of({{"a/1.png", large}}, {.max_bytes = 100000}), "this file has 100000"));
  EXPECT_NE(complaint_of({{"a/1.png", large}, {"a/2.png", large}}, {.max_bytes = 150000}), "");
  Members many;
  for (int i = 0; i < 100; ++i) many.emplace_back(fmt::format("a/{}.png", i), "");
  EXPECT_TRUE(contains(complaint_of(many, {.max_bytes = 10000}), "at most max_bytes, 10000"));
  // What is not read does not count.
  EXPECT_EQ(complaint_of({{"a/1.png", "x"}, {"b.bin", large}}, {.max_bytes = 1000}), "");
}

// A ustar header of a file that claims `size` bytes, in octal digits.
std::string tar_header(const std::string& name, const std::string& size) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, size.size(), size);
  header[156] = '0';
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const unsigned char c : header) sum += c;
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header;
}

TEST_F(TarDatasetTest, HugeSizesInHeaders) {
  for (const std::string size : {"77777777777", "00100000000"}) {  // 8 GiB - 1, 16 MiB
    put(tar(), tar_header("a/1.png", size) + "little");
    EXPECT_NE(complaint([&] { TarDataset dataset(tar()); }), "") << size;
    put(tar(), tar_header("a/1.bin", size) + "little");
    EXPECT_NE(complaint([&] { TarDataset dataset(tar()); }), "") << size;
  }
  // Sizes above 8 GiB are binary numbers, and the first bit says so.
  std::string binary("\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
  put(tar(), tar_header("a/1.png", binary) + "little");
  EXPECT_NE(complaint([&] { TarDataset dataset(tar()); }), "");
  EXPECT_NE(complaint([&] { TarDataset(tar(), {.max_bytes = INT64_MAX}); }), "");
}

TEST_F(TarDatasetTest, CutsAndGarbage) {
  const Content whole_content = {{1, 0}, {2, 0}};
  const Content first_content = {{1, 0}};
  for (const char* compression : {"", "gzip", "xz"}) {
    int accepted = 0;
    SCOPED_TRACE(compression);
    write_tar(tar(), {{"a/1.png", png(1)}, {"a/2.png", png(2)}}, compression);
    const std::string whole = ::qna::testing::content_of(tar());
    for (size_t bytes = 0; bytes < whole.size(); bytes += bytes % 512 == 511 ? 1 : 7) {
      put(folder_.path("cut"), whole.substr(0, bytes));
      // Where no error is seen, because only what ends an archive is missing, or the cut is exactly
      // between two members, what is left is right.
      const std::string error = complaint([&] {
        const Content content = content_of(TarDataset(folder_.path("cut")));
        EXPECT_TRUE(content == whole_content || content == first_content) << bytes;
        accepted += content == first_content;
      });
      EXPECT_TRUE(error.empty() || contains(error, folder_.path("cut"))) << error;
    }
    EXPECT_LE(accepted, 1) << "a file that is cut off";
  }
  for (const std::string& garbage : {std::string(), std::string("text"), std::string(5000, '\1')}) {
    put(tar(), garbage);
    EXPECT_TRUE(contains(complaint([&] { TarDataset dataset(tar()); }), tar() + ": ")) << garbage;
    EXPECT_TRUE(contains(complaint([&] { tar_folders(tar()); }), tar() + ": ")) << garbage;
  }
  EXPECT_TRUE(contains(complaint([&] { TarDataset dataset(folder_.path("none.tar")); }),
                       "there is no such file"));
  EXPECT_TRUE(contains(complaint([&] { TarDataset dataset(folder_.folder().string()); }),
                       "not a regular file"));
}

}  // namespace
}  // namespace qna::data
