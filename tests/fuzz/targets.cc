#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "qna/base/error.h"
#include "qna/coco/annotations.h"
#include "qna/coco/results.h"
#include "qna/coco/voc.h"
#include "qna/coco/yolo.h"
#include "qna/config/auto_encoder.h"
#include "qna/config/detr.h"
#include "qna/config/preprocess.h"
#include "qna/config/qna_vit.h"
#include "qna/data/idx_dataset.h"
#include "qna/data/tar_dataset.h"
#include "qna/data/teacher_targets.h"
#include "qna/engine/model.h"
#include "qna/format/csv.h"
#include "qna/format/fields.h"
#include "qna/format/flax.h"
#include "qna/format/toml.h"
#include "qna/image/read.h"

namespace qna::fuzz {
namespace {

constexpr const char* kOrigin = "fuzz";

// For readers that want a file: one in memory, made anew for every run.
class File {
 public:
  explicit File(const std::string& bytes, const char* ending = "")
      : path_("/dev/shm/qna_fuzz_" + std::to_string(getpid()) + ending) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~File() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Opened, packed and run once on a small image.
void read_engine(const std::string& bytes) {
  const auto file = engine::ModelFile::parse(std::make_shared<const std::string>(bytes), kOrigin);
  const engine::Model model(file);
  engine::Context context(1);
  // A mutated configuration may ask for windows of any size: 8 x 9 pixels serve all of them.
  const std::vector<float> pixels(8 * 9 * model.channels(), 0.5f);
  const engine::Images images{1, 8, 9, pixels.data()};
  switch (model.kind()) {
    case config::Kind::kClassifier: {
      std::vector<float> logits(model.classes());
      model.classify(images, logits.data(), context);
      break;
    }
    case config::Kind::kDetector: {
      const int64_t queries = model.detector().queries;
      std::vector<float> logits(queries * (model.classes() + 1)), boxes(queries * 4);
      model.detect(images, {logits.data(), boxes.data()}, context);
      break;
    }
    case config::Kind::kAutoEncoder: {
      std::vector<float> out(pixels.size());
      model.reconstruct(images, out.data(), context);
    }
  }
}

void read_safetensors(const std::string& bytes) {
  const format::SafetensorsFile file(std::make_shared<const std::string>(bytes), kOrigin);
  for (const format::TensorView& view : file.tensors()) {
    if (!view.bytes.empty()) (void)view.bytes.back();
  }
}

void read_teacher(const std::string& bytes) {
  const data::TeacherTargets targets(std::make_shared<const std::string>(bytes), kOrigin);
  std::vector<float> numbers(std::max<size_t>(targets.classes().size(), targets.features()));
  for (const data::TeacherTargets::Place& place : targets.places("a/one.png")) {
    targets.probabilities(place, 1, numbers.data());
    if (targets.features() > 0) targets.features(place, numbers.data());
  }
}

void read_flax(const std::string& bytes) {
  format::parse_flax(std::as_bytes(std::span(bytes)), kOrigin);
}

void read_toml(const std::string& bytes) {
  const nlohmann::json json = format::parse_toml(bytes, kOrigin);
  // Whatever it is, each reader of configurations takes it or complains.
  const auto attempt = [](const auto& read) {
    try {
      read();
    } catch (const Error&) {
    }
  };
  attempt([&] { config::config_from_json(json); });
  attempt([&] { config::detr_config_from_json(json); });
  attempt([&] { config::auto_encoder_config_from_json(json); });
  attempt([&] { config::preprocess_from_json(json, kOrigin); });
}

void read_coco(const std::string& bytes) { coco::parse_annotations(bytes, kOrigin); }

void read_results(const std::string& bytes) {
  static const coco::Annotations truth = [] {
    return coco::parse_annotations(
        R"({"images":[{"id":1,"file_name":"a.jpg","height":10,"width":10}],)"
        R"("categories":[{"id":1,"name":"a"}],"annotations":[]})",
        kOrigin);
  }();
  coco::parse_results(bytes, kOrigin, truth);
}

void read_voc(const std::string& bytes) { coco::parse_voc(bytes, kOrigin); }

// Labels, or a description.
void read_yolo(const std::string& bytes) {
  if (bytes.find("names") == std::string::npos) {
    coco::parse_yolo(bytes, kOrigin);
  } else {
    coco::parse_yolo_description(bytes, kOrigin);
  }
}

void read_csv(const std::string& bytes) { format::parse_csv(bytes, kOrigin); }

void read_image(const std::string& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  image::ReadOptions options;
  options.max_pixels = 1 << 20;
  image::decode_image({data, bytes.size()}, kOrigin, options);
}

// Images and labels one behind the other: the first two bytes say where the labels begin.
void read_idx(const std::string& bytes) {
  size_t split = 0;
  if (bytes.size() >= 2) std::memcpy(&split, bytes.data(), 2);
  const std::string both = bytes.substr(std::min<size_t>(bytes.size(), 2));
  split = std::min(split, both.size());
  const File images(both.substr(0, split), ".images"), labels(both.substr(split), ".labels");
  const data::IdxDataset dataset(images.path(), labels.path());
  for (int64_t i = 0; i < dataset.size(); ++i) dataset.read(i, 1);
}

void read_tar(const std::string& bytes) {
  const File file(bytes);
  data::tar_folders(file.path());
  data::TarOptions options;
  options.max_bytes = 1 << 20;
  const data::TarDataset images(file.path(), options);
  for (int64_t i = 0; i < images.size(); ++i) images.read(i, 3);
}

}  // namespace

std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"engine", "weights files, opened and run", &read_engine, 1000},
      {"safetensors", "safetensors files", &read_safetensors, 100},
      {"teacher", "files of a teacher's targets", &read_teacher, 100},
      {"flax", "flax checkpoints", &read_flax, 100},
      {"coco", "COCO annotations", &read_coco, 100},
      {"results", "COCO results", &read_results, 100},
      {"voc", "VOC annotations", &read_voc, 100},
      {"yolo", "YOLO's labels and descriptions", &read_yolo, 100},
      {"csv", "tables of a sweep's runs", &read_csv, 100},
      {"toml", "configurations and recipes in TOML", &read_toml, 100},
      {"jpeg", "JPEG pictures", &read_image, 100},
      {"png", "PNG pictures", &read_image, 100},
      {"webp", "WebP pictures", &read_image, 100},
      {"idx", "idx files", &read_idx, 20},
      {"tar", "tar files", &read_tar, 20},
  };
  return kTargets;
}

}  // namespace qna::fuzz
