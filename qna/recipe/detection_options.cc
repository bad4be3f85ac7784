#include "qna/recipe/detection_options.h"

#include <cmath>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/coco/yolo.h"
#include "qna/config/detectors.h"
#include "qna/engine/model_file.h"
#include "qna/format/fields.h"
#include "qna/recipe/recipe.h"

namespace qna::tasks {
namespace {

using format::EnumName;
using format::Fields;
using nlohmann::json;

constexpr EnumName<Freeze> kFreeze[] = {
    {Freeze::kNone, "none"}, {Freeze::kFirstStage, "first_stage"}, {Freeze::kBackbone, "backbone"}};
constexpr EnumName<bool> kAbsent[] = {{false, "stop"}, {true, "skip"}};

void read_model(const Fields& fields, DetectionTaskOptions& o) {
  fields("name", o.model);
  fields("backbone", o.backbone);
  fields("backbone_stages", o.backbone_stages);
  fields("weights", o.weights);
  fields.choose("freeze", o.freeze, kFreeze);
  o.config = fields.table("config").object();
  fields.refuse_unknown();
}

std::string below(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).string();  // an absolute path stays
}

// Where the data set is one of YOLO's, data.yaml or the folders images and labels say where the
// images are.
void find_yolo(DetectionTaskOptions& o) {
  namespace fs = std::filesystem;
  const fs::path root = o.path;
  std::error_code error;
  const auto is_folder = [&](const fs::path& path) { return fs::is_directory(path, error); };
  if (o.path.empty() || fs::exists(root / o.train.annotations, error)) return;
  const auto set = [&](data::DetectionDatasetOptions& which, const std::string& images) {
    which.images = images;
    which.annotations = coco::yolo_labels_of((root / images).lexically_normal().string());
    which.annotations = fs::absolute(which.annotations).string();  // not below data.path again
  };
  const std::string file = (root / "data.yaml").string();
  if (!fs::exists(file, error)) {
    if (!is_folder(root / "labels/train") || !is_folder(root / "images/train")) return;
    set(o.train, "images/train");
    set(o.val, "images/val");
    return;
  }
  const coco::YoloDescription description = coco::read_yolo_description(file);
  const auto place = [&](const char* key, const std::string& written) {
    check(!written.empty(), "{}: '{}' is missing: the folder of pictures", file, key);
    const std::optional<std::string> found = coco::find_yolo_images(o.path, written);
    check(found.has_value(), "{}: {} must be a folder of pictures below {}, got {}", file, key,
          o.path, written);
    return *found;
  };
  set(o.train, place("train", description.train));
  set(o.val, place("val", description.val));
}

void read_data(const Fields& fields, DetectionTaskOptions& o) {
  fields("path", o.path);
  find_yolo(o);
  fields("train", o.train.annotations);
  fields("train_images", o.train.images);
  fields("val", o.val.annotations);
  fields("val_images", o.val.images);
  fields("limit", o.train.limit);
  fields.choose("absent", o.train.skip_absent, kAbsent);
  fields("class_names", o.train.class_names);
  read_reading(fields, o.reading);
  fields.refuse_unknown();
  check(!o.path.empty(), "recipe: data.path is missing; give it with --set data.path=FOLDER");
  check(o.train.limit >= 0, "recipe: data.limit must be at least 0, got {}", o.train.limit);
  o.val.limit = o.train.limit;
  o.val.skip_absent = o.train.skip_absent;
  o.val.class_names = o.train.class_names;
  for (data::DetectionDatasetOptions* set : {&o.train, &o.val}) {
    set->annotations = below(o.path, set->annotations);
    set->images = below(o.path, set->images);
  }
}

data::DetectionAugment read_augment(const Fields& fields) {
  data::DetectionAugment a;
  fields("flip", a.flip);
  fields("shorter", a.shorter);
  fields("longest", a.longest);
  fields("crop", a.crop);
  fields("crop_shorter", a.crop_shorter);
  fields("crop_size", a.crop_size);
  fields("color_jitter", a.color_jitter);
  fields.refuse_unknown();
  data::check_augment(a, "recipe: augment");
  return a;
}

void read_loss(const Fields& fields, SetLossOptions& loss) {
  const std::pair<const char*, double*> rows[] = {
      {"class_cost", &loss.class_cost}, {"box_cost", &loss.box_cost},
      {"giou_cost", &loss.giou_cost},   {"class_weight", &loss.class_weight},
      {"box_weight", &loss.box_weight}, {"giou_weight", &loss.giou_weight},
      {"no_object", &loss.no_object}};
  for (const auto& [key, value] : rows) {
    fields(key, *value);
    check(std::isfinite(*value) && *value >= 0, "recipe: loss.{} must be at least 0, got {}", key,
          *value);
  }
  fields.refuse_unknown();
  check(loss.no_object > 0, "recipe: loss.no_object must be above 0, got {}", loss.no_object);
}

void keep_stages(config::QnAViTConfig& config, int64_t stages) {
  const auto all = static_cast<int64_t>(config.stages.size());
  check(stages >= 0 && stages <= all,
        "recipe: model.backbone_stages must be from 1 to {}, or 0 for all, got {}", all, stages);
  if (stages > 0) config.stages.resize(stages);
}

}  // namespace

DetectionTaskOptions detection_options(const json& sections) {
  DetectionTaskOptions o;
  const Fields fields(sections, "recipe");
  read_model(fields.table("model"), o);
  read_data(fields.table("data"), o);
  // What a detector's images are: whole, resized by the shorter side.
  json preprocess = {{"resize", 800}, {"longest", 1333}, {"crop", {0, 0}}, {"filter", "bilinear"}};
  if (!o.backbone.empty()) {  // which knows pictures as it learned from them
    const config::Preprocess learned = engine::ModelFile::open(o.backbone).info().preprocess;
    preprocess["mean"] = learned.mean;
    preprocess["std"] = learned.std;
  }
  preprocess.update(fields.table("preprocess").object());
  o.preprocess = config::preprocess_from_json(preprocess, "recipe: preprocess");
  check(o.preprocess.crop[0] == 0, "recipe: preprocess.crop must be [0, 0]: a detector sees all");
  check(o.preprocess.channels() == 3, "recipe: preprocess.mean must have 3 numbers, got {}",
        o.preprocess.channels());
  if (fields.find("augment") != nullptr) o.augment = read_augment(fields.table("augment"));
  read_loss(fields.table("loss"), o.loss);
  train::name_common_sections(fields);
  fields.refuse_unknown();
  return o;
}

config::DetrConfig detector_config(const DetectionTaskOptions& options, int64_t classes) {
  json config = config::to_json(config::find_detector(options.model).config);
  check(!options.config.contains("classes"),
        "recipe: model.config.classes is decided by the data and must not be given");
  check(options.backbone_stages == 0 || !options.backbone.empty(),
        "recipe: model.backbone_stages is for model.backbone, which is not given");
  if (!options.backbone.empty()) {
    check(!options.config.contains("backbone"),
          "recipe: model.backbone and model.config.backbone must not both be given");
    const engine::ModelFile file = engine::ModelFile::open(options.backbone);
    config::QnAViTConfig backbone = file.config_as<config::QnAViTConfig>();
    backbone.classes = 0;
    keep_stages(backbone, options.backbone_stages);
    config["backbone"] = config::to_json(backbone);
  }
  config.merge_patch(options.config);
  config["classes"] = classes;
  try {
    return config::detr_config_from_json(config);
  } catch (const Error& error) {
    fail("recipe: model.config: {}", error.what());
  }
}

}  // namespace qna::tasks
