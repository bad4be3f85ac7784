#include "bench/study/claims.h"

#include <gtest/gtest.h>

#include "bench/study/rows_testonly.h"

namespace qna::bench::study {
namespace {

const Claim& find(const std::vector<Claim>& list, const std::string& text,
                  const std::string& claimed) {
  for (const Claim& claim : list) {
    if (claim.text == text && claim.claimed == claimed) return claim;
  }
  throw std::out_of_range(text);
}

TEST(Claims, ComeFromTheRows) {
  Rows rows;
  for (const int64_t k : {3, 5, 7}) {
    const auto t = static_cast<double>(k);
    rows.push_back(made_row("qna", {k, 256, 64}, t, 1000));
    rows.push_back(made_row("halo", {k, 256, 64}, 10 * t, 9'000));
    rows.push_back(made_row("py-halo", {k, 256, 64}, 6 * t, 20'000));  // faster, larger
    rows.push_back(made_row("conv", {k, 256, 64}, k == 5 ? 0.9 * t : 2 * t, 10));
    rows.push_back(made_row("sasa", {k, 256, 64}, 2 * t, 5000));
    rows.push_back(made_row("py-sasa-compiled", {k, 256, 64}, 9 * t, 50'000));
  }
  const std::vector<Claim> list = claims(rows);

  const Claim& time = find(list, "forward time of HaloNet / QnA", "paper: at least 5x");
  EXPECT_EQ(time.holds, true);
  EXPECT_EQ(time.measured, "6.0x (k = 3) to 6.0x (k = 3)");
  // The best of both forms: 9 times, which is above the paper's 3 and below the 10 we want.
  EXPECT_EQ(find(list, "extra memory of HaloNet / QnA, forward", "paper: at least 3x").holds, true);
  EXPECT_EQ(find(list, "the same at every window", "goal: at least 10x").holds, false);

  EXPECT_EQ(find(list, "forward time of convolution / QnA at a large window", "paper: 1.8x").holds,
            true);
  const Claim& conv = find(list, "the same from k = 5 up", "goal: above 1x");
  EXPECT_EQ(conv.holds, false);
  EXPECT_EQ(conv.measured, "0.9x (k = 5) to 2.0x (k = 7)");

  const Claim& sasa =
      find(list, "forward time of SASA by unfolding, compiled / fused", "goal: at least 5x");
  EXPECT_EQ(sasa.holds, false);
  EXPECT_EQ(sasa.measured, "4.5x (k = 7)");
  EXPECT_EQ(
      find(list, "QnA: time grows with the window k to the power", "paper: at most 2").measured,
      "1.00");
}

TEST(Claims, WithoutRowsNothingIsSaid) {
  for (const Claim& claim : claims({})) {
    EXPECT_FALSE(claim.holds.has_value()) << claim.text;
    EXPECT_EQ(claim.measured, "-") << claim.text;
  }
  Rows rows = {made_row("qna", {3, 256, 64}, 1, 1), made_row("qna", {5, 256, 64}, 1, 1),
               skipped_row("halo", {3, 256, 64}, "no time")};
  EXPECT_FALSE(
      find(claims(rows), "forward time of HaloNet / QnA", "paper: at least 5x").holds.has_value());
}

}  // namespace
}  // namespace qna::bench::study
