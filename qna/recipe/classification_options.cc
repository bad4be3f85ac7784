#include "qna/recipe/classification_options.h"

#include <cmath>

#include "qna/base/error.h"
#include "qna/config/registry.h"
#include "qna/format/fields.h"
#include "qna/recipe/recipe.h"

namespace qna::tasks {
namespace {

using format::EnumName;
using format::Fields;
using nlohmann::json;

constexpr EnumName<image::Filter> kFilters[] = {{image::Filter::kBilinear, "bilinear"},
                                                {image::Filter::kBicubic, "bicubic"}};
constexpr EnumName<bool> kFreezeStem[] = {{false, "none"}, {true, "stem"}};

void read_model(const Fields& fields, ClassificationOptions& o) {
  fields("name", o.model);
  fields("weights", o.weights);
  fields.choose("freeze", o.freeze_stem, kFreezeStem);
  o.config = fields.table("config").object();
  fields.refuse_unknown();
}

void read_data(const Fields& fields, ClassificationOptions& o) {
  fields("path", o.data.path);
  fields("train", o.train);
  fields("val", o.val);
  fields("val_fraction", o.data.val_fraction);
  int64_t seed = 0;
  fields("split_seed", seed);
  o.data.split_seed = static_cast<uint64_t>(seed);
  fields("class_names", o.class_names);
  fields("keep_classes", o.data.keep_classes);
  read_reading(fields, o.reading);
  fields.refuse_unknown();
  check(!o.data.path.empty(), "recipe: data.path is missing; give it with --set data.path=FOLDER");
}

data::Augment read_augment(const Fields& fields, const config::Preprocess& preprocess) {
  data::Augment a;
  a.size = preprocess.crop;
  for (size_t c = 0; c < a.fill.size(); ++c) {
    a.fill[c] = preprocess.mean[preprocess.channels() == 3 ? c : 0];
  }
  fields("size", a.size);
  fields("crop_scale", a.crop_scale);
  fields("crop_ratio", a.crop_ratio);
  fields("pad", a.pad);
  fields.choose("filter", a.filter, kFilters);
  fields("flip", a.flip);
  fields("color_jitter", a.color_jitter);
  fields("erase", a.erase);
  if (fields.find("rand_augment") != nullptr) {
    data::RandAugment r;
    const Fields inner = fields.table("rand_augment");
    inner("ops", r.ops);
    inner("magnitude", r.magnitude);
    inner("std", r.std);
    inner("probability", r.probability);
    inner.refuse_unknown();
    a.rand_augment = r;
  }
  fields.refuse_unknown();
  data::check_augment(a, "recipe: augment");
  return a;
}

TeacherOptions read_teacher(const Fields& fields, bool augmented) {
  TeacherOptions t;
  const json* targets = fields.find("targets");
  if (targets != nullptr && targets->is_string()) {
    t.targets = {targets->get<std::string>()};
  } else {
    fields("targets", t.targets);
  }
  fields("labels", t.labels);
  fields("logits", t.logits);
  fields("features", t.features);
  fields("temperature", t.temperature);
  fields.refuse_unknown();
  check(!t.targets.empty(),
        "recipe: teacher.targets is missing: the files that python -m qna.teacher writes");
  for (const double weight : {t.labels, t.logits, t.features}) {
    check(weight >= 0 && weight <= 1e6,
          "recipe: teacher.labels, logits and features must be from 0 to 1e6, got {}", weight);
  }
  check(t.labels + t.logits > 0,
        "recipe: one of teacher.labels and teacher.logits must be above 0: nothing would teach "
        "the classes");
  check(t.temperature > 0 && t.temperature <= 100,
        "recipe: teacher.temperature must be above 0 and at most 100, got {}", t.temperature);
  check(augmented, "recipe: teacher needs an [augment] section, which says the size of the views");
  return t;
}

}  // namespace

ClassificationOptions classification_options(const json& sections) {
  ClassificationOptions o;
  const Fields fields(sections, "recipe");
  read_model(fields.table("model"), o);
  read_data(fields.table("data"), o);
  if (const json* preprocess = fields.find("preprocess")) {
    o.preprocess = config::preprocess_from_json(*preprocess, "recipe: preprocess");
  }
  if (fields.find("augment") != nullptr) {
    o.augment = read_augment(fields.table("augment"), o.preprocess);
  }
  const Fields mix = fields.table("mix");
  mix("mixup", o.mix.mixup);
  mix("cutmix", o.mix.cutmix);
  mix("probability", o.mix.probability);
  mix("switch_probability", o.mix.switch_probability);
  mix.refuse_unknown();
  data::check_mix(o.mix, "recipe: mix");
  check(o.augment.has_value() || (o.mix.mixup == 0 && o.mix.cutmix == 0),
        "recipe: mix needs an [augment] section; without one, pictures are taken as in validation");
  const Fields loss = fields.table("loss");
  loss("label_smoothing", o.label_smoothing);
  loss.refuse_unknown();
  check(o.label_smoothing >= 0 && o.label_smoothing < 1,
        "recipe: loss.label_smoothing must be from 0 to below 1, got {}", o.label_smoothing);
  if (fields.find("teacher") != nullptr) {
    o.teacher = read_teacher(fields.table("teacher"), o.augment.has_value());
  }
  train::name_common_sections(fields);
  fields.refuse_unknown();
  return o;
}

std::vector<std::string> class_labels(const ClassificationOptions& options,
                                      const std::vector<std::string>& classes) {
  if (options.class_names.empty()) return classes;
  check(options.class_names.size() == classes.size(),
        "recipe: data.class_names must name the {} classes of {}, got {} names", classes.size(),
        options.data.path, options.class_names.size());
  return options.class_names;
}

config::QnAViTConfig model_config(const ClassificationOptions& options, int64_t classes) {
  json config = config::to_json(config::find_model(options.model).config);
  const std::array<int64_t, 2> size =
      options.augment.has_value() ? options.augment->size : options.preprocess.crop;
  if (size[0] > 0) config["image_size"] = size;
  config["in_channels"] = options.preprocess.channels();
  config["classes"] = classes;
  for (const auto& [key, value] : options.config.items()) {
    check(key != "classes" && key != "in_channels",
          "recipe: model.config.{} is decided by the data and must not be given", key);
    config[key] = value;
  }
  try {
    return config::config_from_json(config);
  } catch (const Error& error) {
    fail("recipe: model.config: {}", error.what());
  }
}

}  // namespace qna::tasks
