#include "bench/study/csv.h"

#include <gtest/gtest.h>

#include "bench/study/rows_testonly.h"
#include "tests/support/complaint.h"

namespace qna::bench::study {
namespace {

using testing::complaint;
using testing::contains;

TEST(Csv, ReadsWhatItWrites) {
  Row unknown = made_row("py-halo", {5, 64, 128}, 7, 0, kTrain);
  unknown.difference = NAN;
  const Rows rows = {made_row("qna", {7, 256, 64}, 1.25, 4096), unknown,
                     skipped_row("sasa", {21, 512, 64}, "would need \"more\", much more")};
  const std::string text = to_csv(rows);
  const Rows again = from_csv(text, "a.csv");
  ASSERT_EQ(again.size(), rows.size());
  EXPECT_EQ(to_csv(again), text);
  EXPECT_EQ(again[0].shape, rows[0].shape);
  EXPECT_EQ(again[0].extra_bytes, 4096);
  EXPECT_DOUBLE_EQ(again[0].min_ms, 1.25);
  EXPECT_EQ(again[0].version, rows[0].version);
  EXPECT_TRUE(std::isnan(again[1].difference));
  EXPECT_EQ(again[2].skipped, rows[2].skipped);
  EXPECT_FALSE(again[2].measured());
}

TEST(Csv, Mistakes) {
  const std::string good = to_csv({made_row("qna", {7, 256, 64}, 1.25, 4096)});
  const auto told = [](const std::string& text) {
    return complaint([&] { from_csv(text, "a.csv"); });
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return told(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_TRUE(contains(told(""), "a.csv is no table of the cost study"));
  EXPECT_TRUE(contains(told("a,b\n1,2\n"), "first line"));
  EXPECT_EQ(changed("1.2500", "fast"), "a.csv, line 2: 'fast' is not a number");
  EXPECT_EQ(changed("forward", "sideways"),
            "a.csv, line 2: pass must be forward or train, got 'sideways'");
  EXPECT_EQ(changed(",256,256,", ",256,128,"), "a.csv, line 2: a case must be one square map");
  EXPECT_EQ(changed("1.2500", ""), "a.csv, line 2: a row without a time must say why");
  EXPECT_TRUE(contains(told(good + "qna,forward\n"), "a.csv, line 3: there must be 22 fields"));
}

}  // namespace
}  // namespace qna::bench::study
