#include <algorithm>
#include <cmath>

#include "qna/data/loader.h"
#include "qna/data/loader_testonly.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;

TEST(LoaderBroken, ThrowsTheFirstOfABatchByName) {
  for (const int workers : {1, 4}) {
    Loader loader(noise(12, {6, 7, 9}), {}, kAugmentAll, {},
                  {.batch = 4, .workers = workers, .shuffle = false});
    loader.start(0);
    EXPECT_TRUE(loader.next().has_value());
    // And again, for a caller that goes on.
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(complaint([&] { loader.next(); }), "noise[6]: is broken");
    }
    loader.start(0);
    EXPECT_EQ(loader.next()->index, 0);
    EXPECT_TRUE(loader.broken().empty());
  }
}

TEST(LoaderBroken, LeavesThemOut) {
  for (const Mix& mix : {Mix{}, kMixBoth}) {
    const LoaderOptions options{.batch = 4, .shuffle = false, .skip_broken = true};
    // 2, and both 4 and 5 of one pair, and 10, the single one of the last batch.
    Loader loader(noise(11, {10, 2, 4, 5}), {}, kAugmentAll, mix, options);
    Loader whole(noise(11), {}, kAugmentAll, {}, options);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      loader.start(epoch);
      whole.start(epoch);
      const std::vector<Batch> batches = drain(loader, /*recycle=*/true);
      const std::vector<Batch> expected = drain(whole);
      ASSERT_EQ(batches.size(), 3u);
      for (size_t b = 0; b < 3; ++b) {
        for (int64_t i = 0; i < batches[b].count; ++i) {
          const int64_t image = batches[b].images[i];
          const bool is_broken = image == 2 || image == 4 || image == 5 || image == 10;
          EXPECT_EQ(batches[b].labels[i], is_broken ? -1 : image % 3);
          const auto pixels = batches[b].pixels.begin() + i * 8 * 6 * 3;
          const auto targets = batches[b].targets.begin() + i * 3;
          const bool all_zero =
              std::all_of(pixels, pixels + 8 * 6 * 3, [](float x) { return x == 0; }) &&
              std::all_of(targets, targets + 3, [](float x) { return x == 0; });
          EXPECT_EQ(all_zero, is_broken) << image;
          float sum = 0;
          for (int64_t c = 0; c < 3; ++c) sum += targets[c];
          EXPECT_NEAR(sum, is_broken ? 0 : 1, 1e-6);
        }
      }
      // 3 is the neighbour of 2: mixed with itself, so it is as if not mixed, but for rounding.
      for (int64_t i = 0; i < 8 * 6 * 3; ++i) {
        const float as_is = expected[0].pixels[3 * 8 * 6 * 3 + i];
        EXPECT_NEAR(batches[0].pixels[3 * 8 * 6 * 3 + i], as_is, 1e-6 * (1 + std::abs(as_is)));
      }
      EXPECT_EQ(loader.broken(),
                (std::vector<std::string>{"noise[2]: is broken", "noise[4]: is broken",
                                          "noise[5]: is broken", "noise[10]: is broken"}));
    }
  }
}

TEST(LoaderBroken, EvaluationWithoutACropLooksForAWholeImage) {
  const Preprocess as_is{.resize = 0, .crop = {0, 0}};
  Loader loader(noise(4, {0, 1}), as_is, std::nullopt, {},
                {.batch = 4, .shuffle = false, .skip_broken = true});
  loader.start(0);
  const Batch batch = *loader.next();
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{-1, -1, 2, 0}));
  EXPECT_EQ(batch.height, 9);

  Loader none(noise(2, {0, 1}), as_is, std::nullopt, {}, {.batch = 4, .skip_broken = true});
  EXPECT_EQ(complaint([&] { none.start(0); }),
            "Loader: no picture of the data set can be read; the first: noise[0]: is broken");
  EXPECT_EQ(complaint([&] { none.next(); }), "Loader: start() must be called before next()");
  Loader strict(noise(4, {0}), as_is, std::nullopt, {}, {.batch = 4});
  EXPECT_EQ(complaint([&] { strict.start(0); }), "noise[0]: is broken");
}

// What a data set throws reaches the caller, whatever it is.
class ThrowingDataset final : public Dataset {
 public:
  enum class Kind { kMemory, kOther };
  explicit ThrowingDataset(Kind kind) : kind_(kind) {}
  int64_t size() const override { return 3; }
  int64_t label(int64_t) const override { return 0; }
  std::string name(int64_t index) const override { return fmt::format("t{}", index); }
  image::Image read(int64_t, int64_t) const override {
    if (kind_ == Kind::kMemory) throw std::bad_alloc();
    throw std::logic_error("not a qna::Error");
  }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  const Kind kind_;
  const std::vector<std::string> classes_ = {"a"};
};

TEST(LoaderBroken, OtherExceptions) {
  using Kind = ThrowingDataset::Kind;
  Loader memory(std::make_shared<ThrowingDataset>(Kind::kMemory), {}, kAugmentAll, {},
                {.shuffle = false});
  memory.start(0);
  EXPECT_EQ(complaint([&] { memory.next(); }), "t0: not enough memory for this picture");
  // A mistake of the program is not taken for a broken image.
  Loader other(std::make_shared<ThrowingDataset>(Kind::kOther), {}, kAugmentAll, {},
               {.shuffle = false, .skip_broken = true});
  other.start(0);
  EXPECT_THROW(other.next(), std::logic_error);
  EXPECT_THROW(other.next(), std::logic_error);
}

}  // namespace
}  // namespace qna::data
