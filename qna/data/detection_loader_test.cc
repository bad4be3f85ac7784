#include "qna/data/detection_loader.h"

#include <algorithm>
#include <limits>

#include "qna/data/detection_testonly.h"
#include "qna/data/order.h"

namespace qna::data {
namespace {

using namespace ::qna::data::testing;
using Batches = std::vector<DetectionBatch>;
using Size = std::array<int64_t, 2>;

const DetectionAugment kAugmentSmall = {.shorter = {12, 16, 20},
                                        .longest = 30,
                                        .crop_shorter = {14, 18},
                                        .crop_size = {8, 16},
                                        .color_jitter = 0.2};
const Preprocess kFitSmall = {
    .resize = 16, .longest = 24, .crop = {0, 0}, .filter = image::Filter::kBilinear};

// 11 images of many sizes with up to 3 objects; the annotated size is twice the file's.
class DetectionLoaderTest : public ::testing::Test {
 protected:
  static constexpr int64_t kImages = 11;

  DetectionLoaderTest() {
    for (int64_t i = 0; i < kImages; ++i) {
      const int64_t height = 10 + i % 4, width = 12 + i * 3 % 7;
      folder.add_image(100 + i, 2 * height, 2 * width);
      folder.write_image(100 + i, height, width);
      for (int64_t j = 0; j < i % 4; ++j) {
        const double at = static_cast<double>(2 * j);
        folder.add_object(100 + i, j == 0 ? 90 : 3, {at, at + 1, 9, 7 + at});
      }
    }
    dataset = folder.open();
  }

  Batches drain(DetectionLoader& loader, bool recycle = false) const {
    Batches batches;
    while (std::optional<DetectionBatch> batch = loader.next()) {
      batches.push_back(*batch);  // a copy, so that the memory of the first can go back
      if (recycle) loader.recycle(std::move(*batch));
    }
    return batches;
  }

  Batches epoch_of(const LoaderOptions& options, int64_t epoch = 3, int64_t first = 0) const {
    DetectionLoader loader(dataset, {}, kAugmentSmall, options);
    loader.start(epoch, first);
    return drain(loader);
  }

  void break_image(int64_t index) const {
    folder.put(fmt::format("pictures/{}.png", 100 + index), "no picture");
  }

  DetectionFolder folder;
  std::shared_ptr<const DetectionDataset> dataset;
};

// Pixels and mask of an image must be these numbers, and 0 around them.
void expect_image(const DetectionBatch& batch, int64_t slot, const image::Image& expected,
                  const Preprocess& preprocess) {
  EXPECT_EQ(batch.sizes[slot], (Size{expected.height, expected.width}));
  std::vector<float> floats(expected.pixels.size());
  to_floats(expected, preprocess, floats.data());
  int64_t wrong = 0;
  for (int64_t y = 0; y < batch.height; ++y)
    for (int64_t x = 0; x < batch.width; ++x) {
      const bool inside = y < expected.height && x < expected.width;
      const int64_t place = (slot * batch.height + y) * batch.width + x;
      wrong += batch.mask[place] != (inside ? 1 : 0);
      for (int64_t c = 0; c < 3; ++c) {
        const float value = inside ? floats[(y * expected.width + x) * 3 + c] : 0;
        wrong += batch.pixels[place * 3 + c] != value;
      }
    }
  EXPECT_EQ(wrong, 0) << "picture " << batch.images[slot];
}

TEST_F(DetectionLoaderTest, WorkersChangeNothing) {
  const Batches expected = epoch_of({.batch = 3, .workers = 1, .ahead = 1, .seed = 5});
  ASSERT_EQ(expected.size(), 4u);
  for (const int workers : {1, 2, 5})
    for (const int64_t ahead : {1, 2, 9}) {
      EXPECT_TRUE(epoch_of({.batch = 3, .workers = workers, .ahead = ahead, .seed = 5}) == expected)
          << workers << " workers, " << ahead << " ahead";
    }
}

TEST_F(DetectionLoaderTest, AResumedEpochIsTheTailOfTheWhole) {
  const LoaderOptions options{.batch = 2, .workers = 3, .seed = 9};
  const Batches whole = epoch_of(options);
  for (int64_t first = 0; first <= 6; ++first) {
    EXPECT_TRUE(epoch_of(options, 3, first) == Batches(whole.begin() + first, whole.end()));
  }
}

// The definition of a training image, step by step, in the order of the seed.
TEST_F(DetectionLoaderTest, ImagesAreThoseOfTheSteps) {
  DetectionLoader loader(dataset, {}, kAugmentSmall, {.batch = 4, .seed = 7});
  EXPECT_EQ(loader.batches(), 3);
  for (const int64_t epoch : {2, 3}) {  // the second from the cache
    loader.start(epoch);
    std::vector<int64_t> seen;
    for (const DetectionBatch& batch : drain(loader, /*recycle=*/true)) {
      Size largest = {0, 0};
      for (int64_t i = 0; i < batch.count; ++i) {
        const int64_t index = batch.images[i];
        seen.push_back(index);
        const image::Image image = dataset->read(index);
        EXPECT_EQ(batch.originals[i], (Size{image.height, image.width}));
        Random random(7, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index), kAugment);
        const DetectionSample expected = augment(
            {image, dataset->objects(index, image.height, image.width)}, kAugmentSmall, random);
        expect_image(batch, i, expected.image, {});
        EXPECT_EQ(batch.objects[i], expected.objects);
        largest[0] = std::max(largest[0], expected.image.height);
        largest[1] = std::max(largest[1], expected.image.width);
      }
      EXPECT_EQ((Size{batch.height, batch.width}), largest);
    }
    Random random(7, static_cast<uint64_t>(epoch), 0, kOrder);
    EXPECT_EQ(seen, permutation(kImages, random));
  }
}

TEST_F(DetectionLoaderTest, RanksDivideABatch) {
  const Batches whole = epoch_of({.batch = 5, .seed = 1});
  for (const int ranks : {2, 3, 7}) {
    std::vector<Batches> shares;
    for (int rank = 0; rank < ranks; ++rank) {
      shares.push_back(epoch_of({.batch = 5, .seed = 1, .rank = rank, .ranks = ranks}));
      ASSERT_EQ(shares.back().size(), whole.size());
    }
    for (size_t b = 0; b < whole.size(); ++b) {
      DetectionBatch joined;
      for (const Batches& share : shares) {
        const DetectionBatch& part = share[b];
        EXPECT_EQ(part.total, whole[b].total);
        EXPECT_EQ(part.height == 0, part.count == 0);
        EXPECT_EQ(part.mask.size(), static_cast<size_t>(part.count * part.height * part.width));
        const auto append = [](auto& to, const auto& from) {
          to.insert(to.end(), from.begin(), from.end());
        };
        append(joined.images, part.images);
        append(joined.sizes, part.sizes);
        append(joined.objects, part.objects);
        joined.height = std::max(joined.height, part.height);
      }
      EXPECT_EQ(joined.images, whole[b].images);
      EXPECT_EQ(joined.sizes, whole[b].sizes);
      EXPECT_EQ(joined.objects, whole[b].objects);
      EXPECT_EQ(joined.height, whole[b].height);
    }
  }
}

TEST_F(DetectionLoaderTest, EvaluationFitsInTheOrderOfTheDataSet) {
  for (const size_t cache : {0, 1 << 20}) {
    DetectionLoader loader(dataset, kFitSmall, std::nullopt,
                           {.batch = 4, .shuffle = false, .cache_bytes = cache});
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      loader.start(epoch);
      int64_t next = 0;
      for (const DetectionBatch& batch : drain(loader)) {
        for (int64_t i = 0; i < batch.count; ++i, ++next) {
          EXPECT_EQ(batch.images[i], next);
          const image::Image image = dataset->read(next);
          EXPECT_EQ(batch.originals[i], (Size{image.height, image.width}));
          const image::Image fitted = fit(image, kFitSmall);
          expect_image(batch, i, fitted, kFitSmall);
          const auto expected = dataset->objects(next, fitted.height, fitted.width);
          ASSERT_EQ(batch.objects[i].size(), expected.size());
          for (size_t j = 0; j < expected.size(); ++j) {
            EXPECT_EQ(batch.objects[i][j].label, expected[j].label);
            for (size_t k = 0; k < 4; ++k) {
              EXPECT_NEAR(batch.objects[i][j].box[k], expected[j].box[k], 1e-12);
            }
          }
        }
      }
      EXPECT_EQ(next, kImages);
    }
  }
}

// Boxes are then in pixels of the file, and go with them to the fitted size.
TEST_F(DetectionLoaderTest, EvaluationOfAnImageThatDoesNotSayItsSize) {
  for (auto& image : folder.truth["images"]) {
    image.erase("width");
    image.erase("height");
  }
  const auto unsized = folder.open();
  DetectionLoader loader(unsized, kFitSmall, std::nullopt, {.batch = 20, .shuffle = false});
  loader.start(0);
  const DetectionBatch batch = *loader.next();
  // Image 1: 11 x 15, fitted to 16 x 21, with a box at 0, 1 of 9 x 7.
  EXPECT_EQ(batch.sizes[1], (Size{16, 21}));
  ASSERT_EQ(batch.objects[1].size(), 1u);
  const std::array<double, 4> box = {0, 16. / 11, 9 * 21. / 15, 8 * 16. / 11};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(batch.objects[1][0].box[i], box[i], 1e-12);
}

TEST_F(DetectionLoaderTest, BrokenImagesAreNamed) {
  break_image(6);
  break_image(7);
  for (const int workers : {1, 4}) {
    DetectionLoader loader(dataset, {}, kAugmentSmall,
                           {.batch = 4, .workers = workers, .shuffle = false});
    loader.start(0);
    EXPECT_EQ(loader.next()->index, 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(contains(complaint([&] { loader.next(); }), folder.path("pictures/106.png")));
    }
    EXPECT_TRUE(loader.broken().empty());
  }
}

TEST_F(DetectionLoaderTest, BrokenImagesAreLeftOut) {
  const LoaderOptions options{.batch = 4, .shuffle = false, .skip_broken = true};
  for (const bool training : {true, false}) {
    for (const int64_t index : {2, 8, 9, 10}) folder.write_image(100 + index, 10, 10);
    const auto augment = training ? std::optional(kAugmentSmall) : std::nullopt;
    DetectionLoader whole(dataset, kFitSmall, augment, options);
    whole.start(0);
    const Batches expected = drain(whole);
    for (const int64_t index : {2, 8, 9, 10}) break_image(index);
    DetectionLoader loader(dataset, kFitSmall, augment, options);
    loader.start(0);
    const Batches batches = drain(loader, /*recycle=*/true);
    ASSERT_EQ(batches.size(), 3u);
    for (int64_t i = 0; i < 4; ++i) {
      const bool broken = i == 2;
      EXPECT_EQ(batches[0].sizes[i], broken ? (Size{0, 0}) : expected[0].sizes[i]);
      EXPECT_EQ(batches[0].originals[i], broken ? (Size{0, 0}) : expected[0].originals[i]);
      EXPECT_EQ(batches[0].objects[i].empty(), broken || expected[0].objects[i].empty());
    }
    const int64_t area = batches[0].height * batches[0].width;
    const auto mask = batches[0].mask.begin() + 2 * area;
    EXPECT_EQ(std::count(mask, mask + area, 0), area);
    EXPECT_TRUE(batches[1] == expected[1]);
    // All broken: nothing to look at, but they are still told.
    EXPECT_EQ(batches[2].count, 3);
    EXPECT_EQ(batches[2].height, 0);
    EXPECT_TRUE(batches[2].pixels.empty());
    EXPECT_EQ(batches[2].images, (std::vector<int64_t>{8, 9, 10}));
    const std::vector<std::string> lines = loader.broken();
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_TRUE(lines[0].starts_with(folder.path("pictures/102.png") + ": "));
    EXPECT_TRUE(contains(lines[3], "110.png"));
  }
}

TEST_F(DetectionLoaderTest, RecycledMemoryChangesNothing) {
  DetectionLoader loader(dataset, {}, kAugmentSmall, {.batch = 4, .ahead = 2});
  loader.start(1);
  const Batches expected = drain(loader);
  DetectionBatch nonsense;
  nonsense.pixels.assign(100000, std::numeric_limits<float>::quiet_NaN());
  nonsense.mask.assign(100000, 1);
  nonsense.sizes.assign(1000, {500, 500});
  nonsense.objects.assign(1000, {LabelledBox{}});
  nonsense.height = 900;
  loader.recycle(std::move(nonsense));
  loader.start(1);
  EXPECT_TRUE(drain(loader, /*recycle=*/true) == expected);
}

TEST_F(DetectionLoaderTest, Mistakes) {
  const auto said_of = [&](const Preprocess& preprocess, bool training,
                           const LoaderOptions& options = {}) {
    return complaint([&] {
      DetectionLoader(dataset, preprocess, training ? std::optional(kAugmentSmall) : std::nullopt,
                      options);
    });
  };
  EXPECT_EQ(said_of({}, true), "");
  EXPECT_EQ(said_of(kFitSmall, false), "");
  EXPECT_EQ(said_of({}, false),
            "DetectionLoader: crop must be 0, 0, for objects at the edges count too, got 224, 224");
  EXPECT_EQ(said_of({.mean = {0}, .std = {1}}, true),
            "DetectionLoader: mean must have 3 numbers, got 1");
  EXPECT_EQ(said_of({}, true, {.batch = 0}),
            "DetectionLoader: batch must be in [1, 1048576], got 0");
  EXPECT_THROW(DetectionLoader(nullptr, {}, kAugmentSmall, {}), Error);
  EXPECT_EQ(complaint([&] { DetectionLoader(dataset, {}, DetectionAugment{.flip = 2}, {}); }),
            "DetectionLoader: flip must be in [0, 1], got 2");
  DetectionLoader loader(dataset, {}, kAugmentSmall, {.batch = 2});
  EXPECT_EQ(complaint([&] { loader.next(); }),
            "DetectionLoader: start() must be called before next()");
  EXPECT_EQ(complaint([&] { loader.start(0, 7); }),
            "DetectionLoader: first_batch must be in [0, 6], got 7");
}

}  // namespace
}  // namespace qna::data
