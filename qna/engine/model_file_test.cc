// Weights files that are broken, or whole but not what they say: one clear error each.
#include "qna/engine/model_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/support/complaint.h"
#include "tests/support/random_model.h"

namespace qna::engine {
namespace {

using format::DType;
using qna::testing::complaint;
using qna::testing::contains;

std::vector<NetworkConfig> all_kinds() {
  return {qna::testing::small_classifier(), qna::testing::small_detector(),
          qna::testing::small_auto_encoder()};
}

ModelInfo info_for(const NetworkConfig& config) {
  ModelInfo info;
  info.name = "small";
  if (kind_of(config) == Kind::kDetector) {
    info.preprocess.crop = {0, 0};
    info.category_ids = {7, 8, 9};
  }
  if (classes_of(config) == 3) info.labels = {"a", "b", "c"};
  return info;
}

std::string bytes_of(const NetworkConfig& config) {
  return qna::testing::random_model_bytes(config, info_for(config));
}

// A file that is opened, changed and written again without checks.
struct Parts {
  std::map<std::string, std::string> metadata;
  struct Tensor {
    DType dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Tensor> tensors;

  explicit Parts(const std::string& bytes) {
    const format::SafetensorsFile file(std::make_shared<const std::string>(bytes), "parts");
    metadata = file.metadata();
    for (const format::TensorView& view : file.tensors()) {
      tensors[view.name] = {
          view.dtype, view.shape,
          std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size())};
    }
  }
  std::string text() const {
    std::vector<format::TensorView> views;
    for (const auto& [name, t] : tensors) {
      views.push_back({name, t.dtype, t.shape, std::as_bytes(std::span(t.bytes))});
    }
    return format::safetensors_bytes(views, metadata, "parts");
  }
};

std::string complaint_of(const std::string& bytes) {
  return complaint([&] {
    const ModelFile file = ModelFile::parse(std::make_shared<const std::string>(bytes), "w.st");
    const Model model(file);
  });
}

TEST(ModelFile, SaysWhatWasWritten) {
  for (const NetworkConfig& config : all_kinds()) {
    const ModelInfo info = info_for(config);
    const ModelFile file =
        ModelFile::parse(std::make_shared<const std::string>(bytes_of(config)), "memory");
    EXPECT_EQ(file.config(), config);
    EXPECT_EQ(file.info().name, "small");
    EXPECT_EQ(file.info().labels, info.labels);
    EXPECT_EQ(file.info().category_ids, info.category_ids);
    EXPECT_EQ(file.info().preprocess, info.preprocess);
    file.check_tensors();
  }
}

TEST(ModelFile, HalfPrecisionIsReadAsItWasRounded) {
  const NetworkConfig config = qna::testing::small_classifier();
  const ModelFile file =
      ModelFile::parse(std::make_shared<const std::string>(bytes_of(config)), "memory");
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::string bytes =
        model_file_bytes(config, info_for(config), file.tensors().tensors(), dtype, "test");
    const ModelFile half = ModelFile::parse(std::make_shared<const std::string>(bytes), "memory");
    half.check_tensors();
    for (const format::TensorView& view : file.tensors().tensors()) {
      const std::vector<float> a = read_floats(view, "a");
      const std::vector<float> b = read_floats(half.tensors().at(view.name), "b");
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_NEAR(a[i], b[i], std::abs(a[i]) * (dtype == DType::kF16 ? 0x1p-11 : 0x1p-8) + 1e-7);
      }
    }
  }
}

TEST(ModelFile, TensorsThatDoNotFitTheConfiguration) {
  struct Case {
    const char* what;
    std::function<void(Parts&)> change;
    std::vector<const char*> words;
  };
  const auto first = [](Parts& parts) -> Parts::Tensor& {
    return parts.tensors.at("stages.0.blocks.0.norm1.weight");
  };
  const auto put = [](Parts::Tensor& tensor, float value) {
    std::memcpy(tensor.bytes.data() + 4, &value, 4);
  };
  const Case cases[] = {
      {"missing", [](Parts& p) { p.tensors.erase("head.fc.bias"); }, {"no tensor", "head.fc.bias"}},
      {"extra", [&](Parts& p) { p.tensors["odd"] = first(p); }, {"no place", "odd"}},
      {"other shape",
       [&](Parts& p) {
         first(p).shape = {2, 4};
       },
       {"must be [8]", "got [2, 4]"}},
      {"integers", [&](Parts& p) { first(p).dtype = DType::kI32; }, {"floating", "I32"}},
      {"NaN", [&](Parts& p) { put(first(p), NAN); }, {"finite", "nan", "place 1"}},
      {"infinity", [&](Parts& p) { put(first(p), INFINITY); }, {"finite", "inf"}},
      {"no configuration", [](Parts& p) { p.metadata.erase("config"); }, {"no model config"}},
      {"other format", [](Parts& p) { p.metadata["format"] = "qna-9"; }, {"qna-9", "qna-1"}},
      {"other kind", [](Parts& p) { p.metadata["kind"] = "poem"; }, {"poem", "classifier"}},
      {"a detector's",
       [](Parts& p) { p.metadata["kind"] = "detector"; },
       {"detector configuration", "unknown"}},
      {"labels", [](Parts& p) { p.metadata["labels"] = "[\"a\"]"; }, {"1 labels", "3 classes"}},
      {"labels no list", [](Parts& p) { p.metadata["labels"] = "3"; }, {"labels", "list"}},
      {"preprocess",
       [](Parts& p) { p.metadata["preprocess"] = R"({"mean":[0.5],"std":[1]})"; },
       {"3 channels", "makes 1"}},
      {"broken JSON", [](Parts& p) { p.metadata["config"] = "{\"stages\":["; }, {"config"}},
  };
  const Parts whole(bytes_of(qna::testing::small_classifier()));
  EXPECT_EQ(complaint_of(whole.text()), "");
  for (const Case& c : cases) {
    Parts parts = whole;
    c.change(parts);
    const std::string said = complaint_of(parts.text());
    EXPECT_TRUE(contains(said, "w.st")) << c.what << ": " << said;
    for (const char* word : c.words) EXPECT_TRUE(contains(said, word)) << c.what << ": " << said;
  }
}

TEST(ModelFile, AbsurdSizesAskForNothing) {
  const Parts whole(bytes_of(qna::testing::small_classifier()));
  for (const char* change :
       {R"({"base_dim": 65536})", R"({"classes": 16777216})", R"({"patch_size": 1024})",
        R"({"base_dim": 1000000000})", R"({"mlp_ratio": 64})", R"({"image_size": 65536})",
        R"({"head": "qnav2", "image_size": 65536})", R"({"classes": -1})",
        R"({"mlp_ratio": 1e300})"}) {
    Parts parts = whole;
    nlohmann::json config = nlohmann::json::parse(parts.metadata["config"]);
    config.update(nlohmann::json::parse(change));
    parts.metadata["config"] = config.dump();
    const bool harmless = std::string(change) == R"({"image_size": 65536})";
    EXPECT_EQ(complaint_of(parts.text()).empty(), harmless) << change;
  }
}

TEST(ModelFile, TrainingStateIsPassedBy) {
  Parts parts(bytes_of(qna::testing::small_classifier()));
  parts.tensors["training/anything"] = {DType::kI64, {1}, std::string(8, '\0')};
  EXPECT_EQ(complaint_of(parts.text()), "");
}

}  // namespace
}  // namespace qna::engine
