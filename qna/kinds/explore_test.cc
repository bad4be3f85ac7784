// The numbers of an explorer's page are those of the engine.
#include "qna/kinds/explore.h"

#include <gtest/gtest.h>

#include <cmath>

#include "qna/base/error.h"
#include "qna/config/registry.h"
#include "qna/data/detection_testonly.h"
#include "qna/kinds/run_report.h"
#include "qna/predict/attention.h"
#include "qna/predict/classify.h"
#include "qna/predict/detect.h"
#include "qna/predict/input.h"
#include "qna/report/explorer_testonly.h"
#include "tests/support/random_model.h"

namespace qna::kinds {
namespace {

using data::testing::noise_image;
using engine::LayerAttention;
using nlohmann::json;
using report::unpacked;
using testing::random_model;

constexpr float kTolerance = 1e-3f;  // 16 bits: three decimals are shown

void softmax(std::vector<float>& numbers) {
  float largest = numbers[0], sum = 0;
  for (const float number : numbers) largest = std::max(largest, number);
  for (float& number : numbers) sum += number = std::exp(number - largest);
  for (float& number : numbers) number /= sum;
}

// What a page says of a layer, by the formulas of explorer.h.
class Page {
 public:
  explicit Page(const json& layer)
      : layer_(layer), height_(layer["height"]), width_(layer["width"]), heads_(layer["heads"]) {}

  // [taps] of a window, 0 outside the map.
  std::vector<float> window(int64_t i, int64_t j, int64_t query, int64_t head) const {
    const auto scores = unpacked(layer_["scores"]), bias = unpacked(layer_["bias"]);
    const auto at = [&](const char* key, int axis) { return layer_[key][axis].get<int64_t>(); };
    const int64_t columns = layer_["queries"].get<int64_t>() * heads_, k = query * heads_ + head;
    std::vector<float> p;
    std::vector<int64_t> inside;
    for (int64_t t = 0; t < at("kernel", 0) * at("kernel", 1); ++t) {
      const int64_t y =
          i * at("window_stride", 0) - at("padding", 0) + t / at("kernel", 1) * at("dilation", 0);
      const int64_t x =
          j * at("window_stride", 1) - at("padding", 1) + t % at("kernel", 1) * at("dilation", 1);
      if (y < 0 || y >= height_ || x < 0 || x >= width_) continue;
      inside.push_back(t);
      p.push_back(scores[(y * width_ + x) * columns + k] +
                  (bias.empty() ? 0 : bias[t * columns + k]));
    }
    softmax(p);
    std::vector<float> all(at("kernel", 0) * at("kernel", 1));
    for (size_t n = 0; n < p.size(); ++n) all[inside[n]] = p[n];
    return all;
  }

  // What all places of self-attention give every place, [height, width].
  std::vector<float> token_sums(int64_t head) const {
    const auto queries = unpacked(layer_["queries_of"]), keys = unpacked(layer_["keys_of"]);
    const auto bias = unpacked(layer_["bias"]);
    const int64_t dim = layer_["dim"], table_h = layer_["table"][0], table_w = layer_["table"][1];
    const int64_t window_h = layer_["window"][0], window_w = layer_["window"][1];
    std::vector<float> sums(height_ * width_);
    for (int64_t q = 0; q < height_ * width_; ++q) {
      const int64_t row = q / width_, column = q % width_;
      std::vector<float> p;
      std::vector<int64_t> places;
      for (int64_t k = 0; k < height_ * width_; ++k) {
        const int64_t y = k / width_, x = k % width_;
        if (y / window_h != row / window_h || x / window_w != column / window_w) continue;
        float score = bias[(head * (2 * table_h - 1) + table_h - 1 + y - row) * (2 * table_w - 1) +
                           table_w - 1 + x - column];
        for (int64_t d = 0; d < dim; ++d) {
          score += queries[(q * heads_ + head) * dim + d] * keys[(k * heads_ + head) * dim + d];
        }
        p.push_back(score);
        places.push_back(k);
      }
      softmax(p);
      for (size_t n = 0; n < p.size(); ++n) sums[places[n]] += p[n];
    }
    return sums;
  }

 private:
  const json& layer_;
  const int64_t height_, width_, heads_;
};

void expect_near(const std::vector<float>& found, const float* expected, float tolerance) {
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << i;
}

void expect_windows(const json& layer, const LayerAttention& engine) {
  const engine::AttentionKernels& k = engine.kernels;
  ASSERT_EQ(k.every, 1);
  ASSERT_EQ(layer["windows"], json({k.rows, k.columns}));
  const Page page(layer);
  const int64_t taps = k.kernel_h * k.kernel_w;
  for (int64_t query = 0; query < engine.maps.queries; ++query)
    for (int64_t head = 0; head < engine.maps.heads; ++head)
      for (int64_t n = 0; n < k.rows * k.columns; ++n) {
        const std::vector<float> p = page.window(n / k.columns, n % k.columns, query, head);
        float sum = 0;
        for (const float each : p) sum += each;
        ASSERT_NEAR(sum, 1, 1e-5f);
        const int64_t first = (query * engine.maps.heads + head) * k.rows * k.columns + n;
        expect_near(p, k.attention.data() + first * taps, kTolerance);
      }
}

void expect_tokens(const json& layer, const LayerAttention& engine) {
  const int64_t places = engine.maps.height * engine.maps.width;
  for (int64_t head = 0; head < engine.maps.heads; ++head) {
    // Sums over a window's places.
    expect_near(Page(layer).token_sums(head), engine.maps.attention.data() + head * places,
                16 * kTolerance);
  }
}

// The page of a picture of these sides, all of whose layers are compared with the engine's.
json explored(const engine::Model& model, int64_t height, int64_t width, double threshold = 0.5) {
  const image::Image image = noise_image(1, height, width);
  engine::Context context(2);
  const json data = report::explorer_data(report::explorer_page(
      explore(model, "noise.png", image, image, {.threshold = threshold}, context)));
  predict::AttentionOptions options{.layers = {}, .kernel_side = 1000};
  for (const json& layer : data["layers"]) options.layers.push_back(layer["name"]);
  const predict::Input input(image, model.info().preprocess);
  const auto engine = predict::attention_of(model, input.images(), options, context);
  EXPECT_EQ(engine.size(), data["layers"].size());
  for (size_t i = 0; i < engine.size(); ++i) {
    const json& layer = data["layers"][i];
    SCOPED_TRACE(engine[i].layer.name);
    EXPECT_EQ(layer["name"], engine[i].layer.name);
    EXPECT_EQ(layer["stride"], engine[i].layer.stride);
    EXPECT_EQ(layer["height"], engine[i].maps.height);
    EXPECT_EQ(layer["width"], engine[i].maps.width);
    if (!engine[i].layer.learned_queries) {
      expect_tokens(layer, engine[i]);
    } else if (engine[i].layer.name != "head") {
      expect_windows(layer, engine[i]);
    } else {
      const engine::AttentionMaps& maps = engine[i].maps;  // of one window
      const std::vector<float> p = Page(layer).window(0, 0, 1, 1);
      expect_near(p, maps.attention.data() + (maps.heads + 1) * maps.height * maps.width,
                  kTolerance);
    }
  }
  return data;
}

TEST(Explore, AClassifier) {
  config::QnAViTConfig config = testing::small_classifier(7);
  config.head = config::HeadKind::kQnAv2;
  const engine::Model model = random_model(config, {.preprocess = testing::small_preprocess()});
  const json data = explored(model, 18, 22);
  EXPECT_EQ(data["layers"].size(), 4u);  // QnA, its down-sampling, self-attention, head
  ASSERT_EQ(data["classes"].size(), 5u);
  engine::Context context(1);
  const predict::Input input(noise_image(1, 18, 22), model.info().preprocess);
  const auto best = predict::classify(model, input.images(), context).front().top(1).front();
  EXPECT_EQ(data["classes"][0]["name"], "class " + std::to_string(best.label));
  EXPECT_EQ(data["classes"][0]["probability"], best.probability);
}

// As detectors have it: the longer side has a limit.
config::Preprocess with_longest() {
  config::Preprocess preprocess = testing::small_preprocess(false);
  preprocess.longest = 2 * preprocess.resize;
  return preprocess;
}

TEST(Explore, ADetector) {
  const engine::Model model =
      random_model(testing::small_detector(), {.preprocess = with_longest()});
  const json data = explored(model, 16, 24, /*threshold=*/0);
  EXPECT_EQ(data["layers"].size(), 3u);
  EXPECT_TRUE(data["classes"].empty());
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 24);
  const predict::FoundObjects all =
      predict::find_objects(model, image, model.info().preprocess, {.sorted = true}, context, true);
  const json& decoder = data["decoder"];
  ASSERT_EQ(decoder["boxes"].size(), all.found.size());
  for (size_t i = 0; i < all.found.size(); ++i) {
    const json& box = decoder["boxes"][i];
    EXPECT_EQ(box["score"], all.found[i].score);
    EXPECT_EQ(box["box"][2], all.found[i].box[2] / 24);
    EXPECT_EQ(unpacked(box["attention"]), all.attention[i].values);
  }
}

TEST(Explore, ADetectorThatIsSureOfNothing) {
  const engine::Model model =
      random_model(testing::small_detector(), {.preprocess = testing::small_preprocess(false)});
  const json data = explored(model, 16, 24, /*threshold=*/1);
  EXPECT_EQ(data["decoder"]["boxes"].size(), 3u);
  EXPECT_NE(data["notes"][0].get<std::string>().find("100 %"), std::string::npos);
}

// All layers of QnA-Tiny fit.
TEST(Explore, ALargeNetwork) {
  const engine::Model model = random_model(config::find_model("qna_vit_tiny").config);
  const image::Image image = noise_image(1, 224, 224);
  engine::Context context(0);
  const std::string page = report::explorer_page(explore(model, "", image, image, {}, context));
  EXPECT_LE(page.size(), report::kExplorerBytes);
  const json data = report::explorer_data(page);
  EXPECT_EQ(data["layers"].size(), model.attention_layers().size());
  EXPECT_EQ(data["notes"].size(), 1u);  // what the network saw
}

TEST(Explore, ChosenLayers) {
  const engine::Model model =
      random_model(testing::small_classifier(), {.preprocess = testing::small_preprocess()});
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 16);
  const report::Explorer explorer =
      explore(model, "", image, image, {.layers = {"0.downsample"}}, context);
  ASSERT_EQ(explorer.layers.size(), 1u);
  EXPECT_EQ(explorer.layers[0].name, "stages.0.downsample");
  EXPECT_THROW(explore(model, "", image, image, {.layers = {"9.9"}}, context), Error);
}

// A report has one picture, with the layers that are worth a look first.
TEST(Explore, InAReport) {
  const engine::Model model =
      random_model(testing::small_classifier(), {.preprocess = testing::small_preprocess()});
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 16);
  report::TrainingReport report{.title = "a run"};
  add_explorer(report, model, "first.png", image, image, context);
  add_explorer(report, model, "second.png", image, image, context);
  const std::string html = report::to_html(report);
  const json data = report::explorer_data(html);
  EXPECT_EQ(data["name"], "first.png");
  EXPECT_EQ(data["layers"].size(), engine::typical_attention_layers(model).size());
  EXPECT_NE(html.find("Look around in one picture"), std::string::npos);
  EXPECT_NE(html.find("script-src 'sha256-"), std::string::npos);
}

// Such as after a training that went wrong.
TEST(Explore, ANetworkOfNumbersThatAreNotFinite) {
  const engine::Model model = random_model(
      testing::small_classifier(),
      {.preprocess = {.mean = {1e30f, 1e30f, 1e30f}, .std = {1e-30f, 1e-30f, 1e-30f}}});
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 16);
  EXPECT_THROW(explore(model, "", image, image, {}, context), Error);
  report::TrainingReport report{.title = "a run"};
  add_explorer(report, model, "first.png", image, image, context);
  EXPECT_FALSE(report.explorer.has_value());
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("finite"), std::string::npos);
}

TEST(Explore, AnAutoEncoder) {
  const engine::Model model = random_model(testing::small_auto_encoder());
  engine::Context context(1);
  const image::Image image = noise_image(1, 16, 16);
  EXPECT_THROW(explore(model, "", image, image, {}, context), Error);
}

}  // namespace
}  // namespace qna::kinds
