// Models that serve: the same bits for every number of threads, every batch and every mask that
// cuts an image out; any number of threads at once; no memory that grows.
#include "qna/engine/model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "tests/support/complaint.h"
#include "tests/support/random_model.h"

// Counted, to know who allocates.
static std::atomic<int64_t> allocations{0};

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace qna::engine {
namespace {

using qna::testing::expect_complaint;
using qna::testing::random_model;

std::vector<float> random_pixels(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> pixels(count);
  for (float& x : pixels) x = normal(random);
  return pixels;
}

// Classifiers of every kind of layer.
std::vector<config::QnAViTConfig> classifiers() {
  const auto with = [](const auto& change) {
    config::QnAViTConfig c = qna::testing::small_classifier(5);
    change(c);
    return c;
  };
  using config::Downsample;
  using config::LocalMixer;
  std::vector<config::QnAViTConfig> all = {
      with([](auto&) {}),
      with([](auto& c) { c.stem = config::StemKind::kConv; }),
      with([](auto& c) { c.stem = config::StemKind::kResNet; }),
      with([](auto& c) { c.stem = config::StemKind::kEfficientNet; }),
      with([](auto& c) { c.head = config::HeadKind::kQnAv1; }),
      with([](auto& c) { c.head = config::HeadKind::kQnAv2; }),
      with([](auto& c) {
        c.stages[1].window = {0, 0};
      }),
      with([](auto& c) { c.layer_scale = 0.1; }),
      with([](auto& c) { c.downsample_skip = config::DownsampleSkip::kAveragePool; })};
  for (const auto mixer : {LocalMixer::kSasa, LocalMixer::kWindow, LocalMixer::kHalo,
                           LocalMixer::kConv, LocalMixer::kDepthwise}) {
    all.push_back(with([&](auto& c) {
      c.local_mixer = mixer;
      c.stages[0].qna_blocks = 2;
      c.stages[0].window = {3, 3};
    }));
  }
  for (const auto down :
       {Downsample::kPatchMerging, Downsample::kConvPool, Downsample::kSasa, Downsample::kHalo,
        Downsample::kConv, Downsample::kDepthwise, Downsample::kConvPoolBlock}) {
    all.push_back(with([&](auto& c) { c.downsample = down; }));
  }
  return all;
}

std::vector<float> classify(const Model& model, const Images& images, int threads) {
  Context context(threads);
  std::vector<float> logits(images.batch * model.classes(), NAN);
  model.classify(images, logits.data(), context);
  return logits;
}

std::vector<float> part(const std::vector<float>& all, int64_t index, int64_t size) {
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}

TEST(Model, ClassifiersHaveTheSameBitsForEveryThreadsAndBatch) {
  for (const config::QnAViTConfig& config : classifiers()) {
    SCOPED_TRACE(config::to_json(config).dump());
    const Model model = random_model(config);
    constexpr int64_t kBatch = 11, kHeight = 19, kWidth = 27;
    constexpr int64_t kNumbers = kHeight * kWidth * 3;
    const std::vector<float> x = random_pixels(kBatch * kNumbers, 3);
    const std::vector<float> all = classify(model, {kBatch, kHeight, kWidth, x.data()}, 1);
    for (const float y : all) ASSERT_TRUE(std::isfinite(y));
    for (const int threads : {2, 3, 8}) {
      EXPECT_EQ(classify(model, {kBatch, kHeight, kWidth, x.data()}, threads), all) << threads;
    }
    for (const int64_t i : {0, 4, 10}) {
      EXPECT_EQ(classify(model, {1, kHeight, kWidth, x.data() + i * kNumbers}, 2),
                part(all, i, model.classes()));
    }
  }
}

TEST(Model, AMaskThatCutsAnImageOutGivesTheImageAlone) {
  for (const config::QnAViTConfig& config : classifiers()) {
    SCOPED_TRACE(config::to_json(config).dump());
    const Model model = random_model(config);
    constexpr int64_t kSide = 24, kHeight = 15, kWidth = 21;
    std::vector<float> x = random_pixels(2 * kSide * kSide * 3, 5);
    std::vector<uint8_t> mask(2 * kSide * kSide, 1);
    std::vector<float> alone;
    for (int64_t y = 0; y < kSide; ++y)
      for (int64_t i = 0; i < kSide; ++i) {
        const bool inside = y < kHeight && i < kWidth;
        mask[y * kSide + i] = inside;
        for (int64_t c = 0; c < 3; ++c) {
          float& value = x[(y * kSide + i) * 3 + c];
          if (inside) alone.push_back(value);
          if (!inside) value = NAN;  // whatever stands there
        }
      }
    const std::vector<float> both = classify(model, {2, kSide, kSide, x.data(), mask.data()}, 2);
    EXPECT_EQ(part(both, 0, 5), classify(model, {1, kHeight, kWidth, alone.data()}, 1));
    EXPECT_EQ(part(both, 1, 5),
              classify(model, {1, kSide, kSide, x.data() + kSide * kSide * 3}, 1));
  }
}

TEST(Model, DetectorsHaveTheSameBitsForEveryThreadsAndBatch) {
  config::DetrConfig anchored = qna::testing::small_detector(3);
  anchored.anchors = true;
  config::DetrConfig on_resnet = qna::testing::small_detector(3);
  on_resnet.backbone = config::ResNetConfig{.depth = 18};
  on_resnet.pre_norm = true;
  for (const config::DetrConfig& config : {qna::testing::small_detector(3), anchored, on_resnet}) {
    SCOPED_TRACE(config::to_json(config).dump());
    ModelInfo info;
    info.preprocess.crop = {0, 0};
    const Model model = random_model(config, info);
    constexpr int64_t kBatch = 5, kHeight = 37, kWidth = 50;
    constexpr int64_t kNumbers = kHeight * kWidth * 3;
    const std::vector<float> x = random_pixels(kBatch * kNumbers, 3);
    const int64_t blocks = config.decoder_blocks;
    const auto run = [&](int64_t first, int64_t batch, int threads) {
      Context context(threads);
      const int64_t rows = blocks * batch * config.queries;
      std::vector<float> logits(rows * 4, NAN), boxes(rows * 4, NAN);
      model.detect({batch, kHeight, kWidth, x.data() + first * kNumbers},
                   {logits.data(), boxes.data(), true}, context);
      logits.insert(logits.end(), boxes.begin(), boxes.end());
      return logits;
    };
    const std::vector<float> all = run(0, kBatch, 1);
    for (const float y : all) ASSERT_TRUE(std::isfinite(y));
    for (const int threads : {2, 3, 8}) EXPECT_EQ(run(0, kBatch, threads), all) << threads;
    const std::vector<float> third = run(3, 1, 2);
    const int64_t size = config.queries * 4;
    for (int64_t block = 0; block < 2 * blocks; ++block) {  // of logits, then of boxes
      EXPECT_EQ(part(third, block, size), part(all, block * kBatch + 3, size)) << block;
    }
  }
}

TEST(Model, AutoEncodersHaveTheSameBitsForEveryThreadsAndBatch) {
  using config::DecoderLayer;
  using config::EncoderLayer;
  for (const auto encoder :
       {EncoderLayer::kConvStride, EncoderLayer::kConvPool, EncoderLayer::kQnA})
    for (const auto decoder :
         {DecoderLayer::kBilinear, DecoderLayer::kTransposed, DecoderLayer::kQnA}) {
      config::AutoEncoderConfig config = qna::testing::small_auto_encoder();
      config.encoder = encoder;
      config.decoder = decoder;
      SCOPED_TRACE(config::to_json(config).dump());
      const Model model = random_model(config);
      constexpr int64_t kBatch = 5, kHeight = 17, kWidth = 22;
      constexpr int64_t kNumbers = kHeight * kWidth * 3;
      const std::vector<float> x = random_pixels(kBatch * kNumbers, 3);
      const auto run = [&](int64_t first, int64_t batch, int threads) {
        Context context(threads);
        std::vector<float> out(batch * kNumbers, NAN);
        model.reconstruct({batch, kHeight, kWidth, x.data() + first * kNumbers}, out.data(),
                          context);
        return out;
      };
      const std::vector<float> all = run(0, kBatch, 1);
      for (const float y : all) ASSERT_TRUE(std::isfinite(y));
      for (const int threads : {2, 3}) EXPECT_EQ(run(0, kBatch, threads), all) << threads;
      EXPECT_EQ(run(3, 1, 2), part(all, 3, kNumbers));
    }
}

// The largest difference of two results, relative to the largest number.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max<double>(most, std::abs(a[i] - b[i]));
    largest = std::max<double>(largest, std::abs(a[i]));
  }
  return most / largest;
}

// Weights kept as bfloat16 take half of the memory and move the results by about 2^-9, the rounding
// of each, whatever the layer; threads and batches change nothing.
TEST(Model, WeightsKeptAsBFloat16) {
  const auto open = [](const NetworkConfig& config, WeightType type, const ModelInfo& info = {}) {
    return Model(
        ModelFile::parse(std::make_shared<const std::string>(random_model_bytes(config, info)),
                         "random"),
        {.weight_type = type});
  };
  constexpr int64_t kBatch = 3, kSide = 32;
  const std::vector<float> x = random_pixels(kBatch * kSide * kSide * 3, 3);
  for (const config::QnAViTConfig& config : classifiers()) {
    SCOPED_TRACE(config::to_json(config).dump());
    const Model plain = open(config, WeightType::kFloat32);
    const Model narrow = open(config, WeightType::kBFloat16);
    EXPECT_LT(narrow.bytes(), plain.bytes());
    const Images images{kBatch, kSide, kSide, x.data()};
    const std::vector<float> expected = classify(plain, images, 1),
                             got = classify(narrow, images, 1);
    EXPECT_GT(difference(expected, got), 0);
    EXPECT_LT(difference(expected, got), 0.05);
    EXPECT_EQ(classify(narrow, images, 3), got);
    EXPECT_EQ(classify(narrow, {1, kSide, kSide, x.data()}, 2), part(got, 0, 5));
  }
  // Of a network of usual width it is half, but for biases and tables.
  config::QnAViTConfig wide = qna::testing::small_classifier(5);
  wide.base_dim = 128;
  EXPECT_LT(static_cast<double>(open(wide, WeightType::kBFloat16).bytes()),
            0.52 * static_cast<double>(open(wide, WeightType::kFloat32).bytes()));

  ModelInfo info;
  info.preprocess.crop = {0, 0};
  config::DetrConfig on_resnet = qna::testing::small_detector(3);
  on_resnet.backbone = config::ResNetConfig{.depth = 18};
  for (const config::DetrConfig& config : {qna::testing::small_detector(3), on_resnet}) {
    const auto run = [&](WeightType type) {
      Context context(1);
      std::vector<float> logits(config.queries * 4), boxes(config.queries * 4);
      open(config, type, info)
          .detect({1, kSide, kSide, x.data()}, {logits.data(), boxes.data()}, context);
      logits.insert(logits.end(), boxes.begin(), boxes.end());
      return logits;
    };
    const double moved = difference(run(WeightType::kFloat32), run(WeightType::kBFloat16));
    EXPECT_GT(moved, 0);
    EXPECT_LT(moved, 0.05);
  }
  for (const auto decoder : {config::DecoderLayer::kBilinear, config::DecoderLayer::kTransposed,
                             config::DecoderLayer::kQnA}) {
    config::AutoEncoderConfig config = qna::testing::small_auto_encoder();
    config.decoder = decoder;
    const auto run = [&](WeightType type) {
      Context context(1);
      std::vector<float> out(kSide * kSide * 3);
      open(config, type).reconstruct({1, kSide, kSide, x.data()}, out.data(), context);
      return out;
    };
    const double moved = difference(run(WeightType::kFloat32), run(WeightType::kBFloat16));
    EXPECT_GT(moved, 0);
    EXPECT_LT(moved, 0.05);
  }
}

// After the first call of a shape, none of `model` allocates: neither maps and scratch, which the
// context counts, nor anything by operator new, which this file counts.
void expect_no_allocation(const Model& model, const std::string& what) {
  for (const int threads : {1, 2}) {
    Context context(threads);
    for (const int64_t side : {33, 64, 48}) {
      const std::vector<float> x = random_pixels(4 * side * side * 3, 1);
      const Images images{4, side, side, x.data()};
      std::vector<float> out(1 << 20), boxes(1 << 20);
      const auto run = [&] {
        switch (model.kind()) {
          case Kind::kClassifier:
            return model.classify(images, out.data(), context);
          case Kind::kDetector:
            return model.detect(images, {.logits = out.data(), .boxes = boxes.data()}, context);
          case Kind::kAutoEncoder:
            return model.reconstruct(images, out.data(), context);
        }
      };
      run();
      const size_t held = context.bytes();
      const int64_t before = allocations;
      for (int i = 0; i < 3; ++i) run();
      EXPECT_EQ(allocations - before, 0) << what << ", " << side << " pixels, " << threads;
      EXPECT_EQ(context.bytes(), held) << what;
    }
  }
}

TEST(Model, NothingIsAllocatedAfterTheFirstCallOfAShape) {
  const auto classifier = [](const auto& change) {
    config::QnAViTConfig c = qna::testing::small_classifier(5);
    change(c);
    return random_model(c);
  };
  expect_no_allocation(classifier([](auto&) {}), "classifier");
  expect_no_allocation(classifier([](auto& c) { c.stem = config::StemKind::kResNet; }), "stem");
  expect_no_allocation(classifier([](auto& c) { c.stem = config::StemKind::kEfficientNet; }),
                       "efficientnet stem");
  expect_no_allocation(classifier([](auto& c) {
                         c.stages[1].window = {0, 0};
                       }),
                       "global attention");
  expect_no_allocation(classifier([](auto& c) { c.downsample = config::Downsample::kConvPool; }),
                       "down-sampling by convolution");
  ModelInfo whole;  // detectors take whole images
  whole.preprocess.crop = {0, 0};
  config::DetrConfig detector = qna::testing::small_detector(3);
  expect_no_allocation(random_model(detector, whole), "detector");
  detector.anchors = true;
  detector.qna.blocks = 1;
  detector.qna.replaces = 1;
  expect_no_allocation(random_model(detector, whole), "detector with QnA and anchors");
  detector.backbone = config::ResNetConfig{.depth = 18};
  expect_no_allocation(random_model(detector, whole), "detector on a ResNet");
  expect_no_allocation(random_model(qna::testing::small_auto_encoder()), "auto-encoder");
}

TEST(Model, ManyThreadsShareOneModel) {
  const Model model = random_model(qna::testing::small_classifier(5));
  constexpr int64_t kImages = 16, kSide = 16, kNumbers = kSide * kSide * 3;
  const std::vector<float> x = random_pixels(kImages * kNumbers, 7);
  const std::vector<float> expected = classify(model, {kImages, kSide, kSide, x.data()}, 1);
  std::atomic<int> wrong{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Context context(1);
      std::vector<float> logits(model.classes());
      for (int n = 0; n < 1250; ++n) {
        const int64_t i = (n * 7 + t) % kImages;
        model.classify({1, kSide, kSide, x.data() + i * kNumbers}, logits.data(), context);
        wrong += logits != part(expected, i, model.classes());
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 10'000);
  EXPECT_EQ(wrong, 0);
}

TEST(Model, WrongArgumentsAreNamed) {
  const Model model = random_model(qna::testing::small_classifier(5));
  Context context(1);
  float y[5];
  expect_complaint([&] { model.classify({1, 0, 4, y}, y, context); }, {"height", "0 x 4"});
  expect_complaint([&] { model.classify({-1, 4, 4, y}, y, context); }, {"batch", "-1"});
  expect_complaint([&] { model.classify({1, 4, 4, nullptr}, y, context); }, {"pixels"});
  expect_complaint(
      [&] {
        model.detect({1, 4, 4, y}, {}, context);
      },
      {"a classifier", "not a detector"});
  model.classify({0, 4, 4, nullptr}, y, context);  // nothing to do
}

// What a visitor asks for, and no more.
class Watch : public Visitor {
 public:
  bool wants_stage(int64_t stage) override { return stage == wanted; }
  void stage(int64_t stage, const MapView& map) override {
    seen.push_back(stage);
    numbers.assign(map.data, map.data + map.batch * map.height * map.width * map.features);
  }
  bool done() override { return stop && !seen.empty(); }
  int64_t wanted = 0;
  bool stop = false;
  std::vector<int64_t> seen;
  std::vector<float> numbers;
};

TEST(Model, AVisitorSeesTheStagesItWantsAndMayStop) {
  const Model model = random_model(qna::testing::small_classifier(5));
  const std::vector<float> x = random_pixels(2 * 16 * 16 * 3, 7);
  Context context(2);
  std::vector<float> logits(10, -1.0f);
  Watch watch;
  watch.stop = true;
  model.classify({2, 16, 16, x.data()}, logits.data(), context, &watch);
  EXPECT_EQ(watch.seen, std::vector<int64_t>{0});
  EXPECT_EQ(watch.numbers.size(), 2u * 8 * 8 * 8);
  EXPECT_EQ(logits, std::vector<float>(10, -1.0f));  // left as they were
  watch = Watch();
  watch.wanted = 1;
  model.classify({2, 16, 16, x.data()}, logits.data(), context, &watch);
  EXPECT_EQ(watch.seen, std::vector<int64_t>{1});
  EXPECT_EQ(logits, classify(model, {2, 16, 16, x.data()}, 1));
}

class Attention : public Visitor {
 public:
  bool wants_attention(const AttentionLayer&) override { return true; }
  int64_t kernel_side() override { return 30; }
  void attention(LayerAttention&& attention) override { all.push_back(std::move(attention)); }
  std::vector<LayerAttention> all;
};

TEST(Model, AttentionMapsSumToTheirWindows) {
  config::QnAViTConfig config = qna::testing::small_classifier(5);
  config.head = config::HeadKind::kQnAv2;
  const Model model = random_model(config);
  const std::vector<float> x = random_pixels(18 * 22 * 3, 7);
  Context context(2);
  Attention visitor;
  model.classify({1, 18, 22, x.data()}, nullptr, context, &visitor);
  ASSERT_EQ(visitor.all.size(), model.attention_layers().size());
  ASSERT_EQ(visitor.all.size(), 4u);  // QnA, its down-sampling, self-attention, head
  for (const LayerAttention& layer : visitor.all) {
    SCOPED_TRACE(layer.layer.name);
    const AttentionMaps& m = layer.maps;
    const bool head = layer.layer.name == "head", down = layer.layer.name == "stages.0.downsample";
    const int64_t windows = head   ? 1
                            : down ? ((m.height + 1) / 2) * ((m.width + 1) / 2)
                                   : m.height * m.width;
    for (int64_t k = 0; k < m.queries * m.heads; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < m.height * m.width; ++i)
        sum += m.attention[k * m.height * m.width + i];
      EXPECT_NEAR(sum, static_cast<double>(windows), 1e-3);
    }
    EXPECT_EQ(m.weight.empty(), !layer.layer.learned_queries);
    EXPECT_EQ(layer.kernels.attention.empty(), !layer.layer.learned_queries || head);
  }
}

}  // namespace
}  // namespace qna::engine
