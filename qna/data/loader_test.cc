#include "qna/data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "qna/data/loader_testonly.h"
#include "qna/data/order.h"
#include "qna/data/teacher_targets_testonly.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;

// All of an epoch.
std::vector<Batch> epoch_of(const LoaderOptions& options, int64_t epoch = 3, int64_t first = 0,
                            int64_t images = 29, const Mix& mix = kMixBoth) {
  Loader loader(noise(images), {}, kAugmentAll, mix, options);
  loader.start(epoch, first);
  return drain(loader);
}

TEST(Loader, WorkersChangeNothing) {
  const std::vector<Batch> expected = epoch_of({.batch = 8, .workers = 1, .ahead = 1, .seed = 5});
  ASSERT_EQ(expected.size(), 4u);
  for (const int workers : {1, 2, 5})
    for (const int64_t ahead : {1, 2, 9}) {
      EXPECT_TRUE(epoch_of({.batch = 8, .workers = workers, .ahead = ahead, .seed = 5}) == expected)
          << workers << " workers, " << ahead << " ahead";
    }
}

// Shares side by side are the batch of one process, mixed pairs and small last batches included.
TEST(Loader, RanksChangeNothing) {
  for (const Mix& mix : {Mix{}, kMixBoth})
    for (const int64_t batch : {4, 7, 8, 12, 64})
      for (const int ranks : {2, 3, 5}) {
        // Where shares are mixed they are even, unless the batch is odd itself.
        const std::vector<Batch> whole = epoch_of({.batch = batch, .seed = 1}, 2, 0, 29, mix);
        std::vector<std::vector<Batch>> shares;
        for (int rank = 0; rank < ranks; ++rank) {
          shares.push_back(
              epoch_of({.batch = batch, .seed = 1, .rank = rank, .ranks = ranks}, 2, 0, 29, mix));
          ASSERT_EQ(shares.back().size(), whole.size());
        }
        for (size_t b = 0; b < whole.size(); ++b) {
          Batch joined = shares[0][b];
          for (int rank = 1; rank < ranks; ++rank) {
            const Batch& share = shares[rank][b];
            EXPECT_EQ(share.total, whole[b].total);
            EXPECT_EQ(share.index, whole[b].index);
            joined.count += share.count;
            const auto append = [](auto& to, const auto& from) {
              to.insert(to.end(), from.begin(), from.end());
            };
            append(joined.pixels, share.pixels);
            append(joined.targets, share.targets);
            append(joined.labels, share.labels);
            append(joined.images, share.images);
          }
          EXPECT_TRUE(joined == whole[b]) << "batch " << b << " of " << batch << ", " << ranks;
        }
      }
}

TEST(Loader, ARankMayHaveNothing) {
  // 9 images in batches of 8: the last has one, which is the last process's.
  for (const Mix& mix : {Mix{}, kMixBoth})
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<Batch> batches =
          epoch_of({.batch = 8, .rank = rank, .ranks = 4}, 0, 0, 9, mix);
      ASSERT_EQ(batches.size(), 2u);
      EXPECT_EQ(batches[0].count, 2);
      EXPECT_EQ(batches[1].count, rank == 3 ? 1 : 0);
      EXPECT_EQ(batches[1].total, 1);
      EXPECT_EQ(batches[1].pixels.size(), static_cast<size_t>(batches[1].count * 8 * 6 * 3));
    }
}

TEST(Loader, AResumedEpochIsTheTailOfTheWhole) {
  const LoaderOptions options{.batch = 4, .workers = 3, .seed = 9};
  const std::vector<Batch> whole = epoch_of(options);
  for (int64_t first = 0; first <= 8; ++first) {
    EXPECT_TRUE(epoch_of(options, 3, first) ==
                std::vector<Batch>(whole.begin() + first, whole.end()))
        << first;
  }
}

TEST(Loader, EachImageOncePerEpochInTheOrderOfTheSeed) {
  for (const int64_t images : {1, 2, 7, 8, 9, 31}) {
    const std::vector<Batch> batches = epoch_of({.batch = 8, .seed = 4}, 6, 0, images);
    std::vector<int64_t> seen;
    for (const Batch& batch : batches) {
      EXPECT_EQ(batch.count, std::min<int64_t>(8, images - batch.index * 8));
      for (int64_t i = 0; i < batch.count; ++i) {
        seen.push_back(batch.images[i]);
        EXPECT_EQ(batch.labels[i], batch.images[i] % 3);
      }
    }
    Random random(4, 6, 0, kOrder);
    EXPECT_EQ(seen, permutation(images, random));
  }
}

TEST(Loader, EpochsAndSeedsDiffer) {
  const auto images = [](int64_t epoch, uint64_t seed) {
    return epoch_of({.batch = 29, .seed = seed}, epoch).front().images;
  };
  EXPECT_NE(images(0, 0), images(1, 0));
  EXPECT_NE(images(0, 0), images(0, 1));
  // The same image is augmented in another way, too.
  const LoaderOptions in_order{.batch = 29, .shuffle = false};
  const Batch first = epoch_of(in_order, 0, 0, 29, {}).front();
  const Batch second = epoch_of(in_order, 1, 0, 29, {}).front();
  EXPECT_EQ(first.images, second.images);
  EXPECT_NE(first.pixels, second.pixels);
}

// The definition of a training image, step by step.
TEST(Loader, PixelsAndTargetsAreThoseOfTheSteps) {
  const auto dataset = noise(29);
  const Preprocess preprocess;
  Loader loader(dataset, preprocess, kAugmentAll, kMixBoth,
                {.batch = 10, .seed = 7, .classes = 5, .label_smoothing = 0.1});
  loader.start(2);
  for (const Batch& batch : drain(loader)) {
    std::vector<float> pixels(batch.count * 8 * 6 * 3);
    std::vector<float> targets;
    for (int64_t i = 0; i < batch.count; ++i) {
      Random random(7, 2, batch.images[i], kAugment);
      float* out = pixels.data() + i * 8 * 6 * 3;
      to_floats(augment(dataset->read(batch.images[i], 3), kAugmentAll, random), preprocess, out);
      erase(out, 8, 6, 3, 0.5, random);
      for (int64_t c = 0; c < 5; ++c) {
        targets.push_back(c == batch.images[i] % 3 ? 0.92f : 0.02f);  // 0.9 + 0.1 / 5
      }
    }
    Random random(7, 2, batch.index, kMix);
    mix(pixels.data(), targets.data(), batch.count, 8, 6, 3, 5, kMixBoth, random);
    EXPECT_EQ(batch.pixels, pixels);
    ASSERT_EQ(batch.targets.size(), targets.size());
    for (size_t i = 0; i < targets.size(); ++i) EXPECT_FLOAT_EQ(batch.targets[i], targets[i]);
  }
}

TEST(Loader, TheCacheChangesNothingButTheReads) {
  const int64_t image_bytes = 9 * 10 * 3;
  std::vector<Batch> expected;
  for (const size_t cache : {size_t{0}, size_t{5 * (image_bytes + 200)}, size_t{1} << 20}) {
    const auto dataset = noise(29);
    Loader loader(dataset, {}, kAugmentAll, kMixBoth, {.batch = 8, .cache_bytes = cache});
    loader.start(0);
    drain(loader);
    EXPECT_EQ(dataset->reads, 29);
    loader.start(1);
    const std::vector<Batch> batches = drain(loader);
    if (expected.empty()) expected = batches;
    EXPECT_TRUE(batches == expected) << cache;
    const int64_t kept = 2 * 29 - dataset->reads;
    const int64_t room = cache == 0 ? 0 : cache < 10000 ? 5 : 29;
    EXPECT_NEAR(kept, room, room == 5 ? 1 : 0);  // how much an image takes is not exact
  }
}

TEST(Loader, EvaluationFitsInTheOrderOfTheDataSet) {
  const auto dataset = noise(11, {}, false);  // of many sizes
  const Preprocess preprocess{.resize = 8, .crop = {6, 7}};
  for (const size_t cache : {0, 1 << 20}) {
    Loader loader(dataset, preprocess, std::nullopt, {},
                  {.batch = 4, .shuffle = false, .cache_bytes = cache});
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      loader.start(epoch);
      const std::vector<Batch> batches = drain(loader, /*recycle=*/true);
      ASSERT_EQ(batches.size(), 3u);
      int64_t next = 0;
      for (const Batch& batch : batches) {
        EXPECT_EQ(batch.height, 6);
        EXPECT_EQ(batch.width, 7);
        for (int64_t i = 0; i < batch.count; ++i, ++next) {
          EXPECT_EQ(batch.images[i], next);
          std::vector<float> expected(6 * 7 * 3);
          to_floats(fit(dataset->read(next, 3), preprocess), preprocess, expected.data());
          EXPECT_TRUE(
              std::equal(expected.begin(), expected.end(), batch.pixels.begin() + i * 6 * 7 * 3));
          for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(batch.targets[i * 3 + c], c == next % 3);
        }
      }
      EXPECT_EQ(next, 11);
    }
  }
}

TEST(Loader, WithoutACropAllImagesNeedOneSize) {
  const Preprocess as_is{.resize = 0, .crop = {0, 0}, .mean = {0.5f}, .std = {0.5f}};
  Loader same(noise(5), as_is, std::nullopt, {}, {.batch = 2, .shuffle = false});
  same.start(0);
  const Batch batch = *same.next();
  EXPECT_EQ(batch.height, 9);
  EXPECT_EQ(batch.width, 10);
  EXPECT_EQ(batch.channels, 1);
  // Also where broken images are left out: this is no broken image.
  Loader many(noise(5, {}, false), as_is, std::nullopt, {},
              {.batch = 5, .shuffle = false, .skip_broken = true});
  many.start(0);
  EXPECT_EQ(complaint([&] { many.next(); }),
            "noise[1]: its size, 10 x 10, is not that of the first picture, 9 x 9 (height x "
            "width); set crop to one size for all");
}

TEST(Loader, RecycledMemoryChangesNothing) {
  Loader loader(noise(29), {}, kAugmentAll, kMixBoth, {.batch = 8, .ahead = 2});
  loader.start(1);
  const std::vector<Batch> expected = drain(loader);
  loader.start(1);
  EXPECT_TRUE(drain(loader, /*recycle=*/true) == expected);
  Batch nonsense;
  nonsense.pixels.assign(100000, std::numeric_limits<float>::quiet_NaN());
  nonsense.targets.assign(7, std::numeric_limits<float>::quiet_NaN());
  nonsense.labels.assign(1000, -7);
  loader.recycle(std::move(nonsense));
  loader.start(1);
  EXPECT_TRUE(drain(loader) == expected);
}

TEST(Loader, CanBeStartedAgainAndLeftAtAnyTime) {
  const auto dataset = noise(1000);
  Loader loader(dataset, {}, kAugmentAll, {}, {.batch = 10, .ahead = 3, .cache_bytes = 0});
  for (int64_t taken = 0; taken < 5; ++taken) {
    loader.start(taken, taken);
    for (int64_t i = 0; i < taken; ++i) EXPECT_EQ(loader.next()->index, taken + i);
  }
  {
    Loader left(dataset, {}, kAugmentAll, {}, {.batch = 10});
    left.start(0);
  }
  loader.start(0, 100);  // nothing is left of it
  EXPECT_FALSE(loader.next().has_value());
  EXPECT_FALSE(loader.next().has_value());
  // Of 100 batches never more than those taken and those ahead were made.
  EXPECT_LE(dataset->reads, 10 * (0 + 1 + 2 + 3 + 4 + 6 * 4) + 10 * 4);
}

std::shared_ptr<const TeacherTargets> teacher_of(TeacherFile file) {
  file.names = "noise[0]\nnoise[1]";
  return std::make_shared<const TeacherTargets>(std::make_shared<const std::string>(file.bytes()),
                                                "teacher");
}

TEST(Loader, ATeachersViewsComeWithItsAnswers) {
  const auto teacher = teacher_of({});
  const Augment plain{.size = {8, 6}, .crop_scale = {0.5, 1}};
  std::set<int64_t> seen;
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    Loader loader(noise(2), {}, plain, {}, {.batch = 2, .temperature = 2}, teacher);
    ASSERT_EQ(loader.columns(), 3 + 3 + 2);
    loader.start(epoch);
    const Batch batch = drain(loader).at(0);
    for (int64_t i = 0; i < 2; ++i) {
      const image::Image image = noise(2)->read(batch.images[i], 3);
      const float* targets = batch.targets.data() + i * loader.columns();
      EXPECT_EQ(targets[batch.labels[i]], 1);
      int64_t fits = 0;
      for (const TeacherTargets::Place& place : teacher->places(noise(2)->name(batch.images[i]))) {
        const View view = teacher->view(place, image, "");
        Random random(0, 0, 0, kAugment);
        std::vector<float> pixels(8 * 6 * 3), said(5);
        to_floats(augment(image, plain, random, &view), {}, pixels.data());
        teacher->probabilities(place, 2, said.data());
        teacher->features(place, said.data() + 3);
        const bool shown =
            std::equal(pixels.begin(), pixels.end(), batch.pixels.begin() + i * 8 * 6 * 3);
        EXPECT_EQ(shown, std::equal(said.begin(), said.end(), targets + 3));
        fits += shown;
        if (shown) seen.insert(place.row);
      }
      EXPECT_EQ(fits, 1);
    }
  }
  EXPECT_EQ(seen.size(), 4u);  // all views, sooner or later
}

TEST(Loader, ATeachersAnswersAreMixedAsThePixels) {
  Loader loader(noise(2), {}, kAugmentAll, {.mixup = 1}, {.batch = 2}, teacher_of({}));
  loader.start(0);
  const Batch batch = drain(loader).at(0);
  for (int64_t i = 0; i < 2; ++i) {
    const float* row = batch.targets.data() + i * loader.columns();
    EXPECT_NEAR(std::accumulate(row, row + 3, 0.0), 1, 1e-6);
    EXPECT_NEAR(std::accumulate(row + 3, row + 6, 0.0), 1, 1e-6);
    EXPECT_LT(*std::max_element(row, row + 3), 1);  // two labels
  }
}

TEST(Loader, Mistakes) {
  EXPECT_THROW(Loader(noise(3), {}, kAugmentAll, {}, {}, teacher_of({})), Error);  // two are seen
  EXPECT_THROW(Loader(noise(2), {}, std::nullopt, {}, {}, teacher_of({})), Error);
  EXPECT_THROW(Loader(noise(2), {}, kAugmentAll, {}, {.temperature = 0}), Error);

  const auto made = [](const LoaderOptions& options, const Mix& mix = {}, bool training = true) {
    return complaint([&] {
      Loader(noise(4), {}, training ? std::optional(kAugmentAll) : std::nullopt, mix, options);
    });
  };
  EXPECT_EQ(made({}), "");
  EXPECT_EQ(made({.batch = 0}), "Loader: batch must be in [1, 1048576], got 0");
  EXPECT_EQ(made({.workers = 0}), "Loader: workers must be in [1, 1024], got 0");
  EXPECT_EQ(made({.ahead = 0}), "Loader: ahead must be at least 1, got 0");
  EXPECT_EQ(made({.ranks = 0}), "Loader: ranks must be at least 1, got 0");
  EXPECT_EQ(made({.rank = 2, .ranks = 2}), "Loader: rank must be in [0, 2), got 2");
  EXPECT_EQ(made({.rank = -1}), "Loader: rank must be in [0, 1), got -1");
  EXPECT_EQ(made({.classes = 2}),
            "Loader: classes must be at least those of the data set, 3, got 2");
  EXPECT_EQ(made({.label_smoothing = 1}),
            "Loader: label_smoothing must be at least 0 and below 1, got 1");
  EXPECT_EQ(made({}, {.mixup = 0.5}, false),
            "Loader: mix must be off for evaluation, got mixup 0.5 and cutmix 0");
  EXPECT_THROW(Loader(nullptr, {}, kAugmentAll, {}, {}), Error);
  EXPECT_THROW(Loader(noise(0), {}, kAugmentAll, {}, {}), Error);

  Loader loader(noise(4), {}, kAugmentAll, {}, {.batch = 2});
  EXPECT_EQ(complaint([&] { loader.next(); }), "Loader: start() must be called before next()");
  EXPECT_EQ(complaint([&] { loader.start(-1); }), "Loader: epoch must be at least 0, got -1");
  EXPECT_EQ(complaint([&] { loader.start(0, 3); }), "Loader: first_batch must be in [0, 2], got 3");
}

}  // namespace
}  // namespace qna::data
