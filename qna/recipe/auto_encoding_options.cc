#include "qna/recipe/auto_encoding_options.h"

#include "qna/base/error.h"
#include "qna/format/fields.h"
#include "qna/recipe/recipe.h"

namespace qna::tasks {
namespace {

// InstanceNorm of a map of one pixel is 0 for every image.
void check_image_size(const config::AutoEncoderConfig& config, const std::array<int64_t, 2>& size) {
  constexpr int64_t kLeast = 7;  // for SSIM
  check(size[0] >= kLeast && size[1] >= kLeast,
        "recipe: preprocess.crop must be at least {} x {}, got {} x {}", kLeast, kLeast, size[0],
        size[1]);
  if (config.encoder == config::EncoderLayer::kQnA) return;
  const bool before_pooling = config.encoder == config::EncoderLayer::kConvPool;
  const int64_t stride = before_pooling ? config.stride() / config.factor : config.stride();
  check(size[0] > stride || size[1] > stride,
        "recipe: preprocess.crop must be larger than {}, so that InstanceNorm has more than one "
        "pixel behind {} layers, got {} x {}",
        stride, config.layers(), size[0], size[1]);
}

}  // namespace

AutoEncodingOptions auto_encoding_options(const nlohmann::json& sections) {
  AutoEncodingOptions o;
  const format::Fields fields(sections, "recipe");
  const format::Fields model = fields.table("model");
  model("weights", o.weights);
  try {
    o.config = config::auto_encoder_config_from_json(model.table("config").object());
  } catch (const Error& error) {
    fail("recipe: model.config: {}", error.what());
  }
  model.refuse_unknown();
  const format::Fields data = fields.table("data");
  data("path", o.path);
  data("val_count", o.val_count);
  read_reading(data, o.reading);
  data.refuse_unknown();
  check(!o.path.empty(), "recipe: data.path is missing; give it with --set data.path=FOLDER");
  nlohmann::json preprocess = {{"resize", 256},
                               {"crop", {256, 256}},
                               {"mean", std::vector<double>(o.config.channels, 0.5)},
                               {"std", std::vector<double>(o.config.channels, 0.5)}};
  preprocess.update(fields.table("preprocess").object());
  o.preprocess = config::preprocess_from_json(preprocess, "recipe: preprocess");
  check(o.preprocess.crop[0] > 0, "recipe: preprocess.crop must be a size, got 0");
  check_image_size(o.config, o.preprocess.crop);
  check(o.preprocess.channels() == o.config.channels,
        "recipe: preprocess.mean must have {} numbers, as model.config.channels, got {}",
        o.config.channels, o.preprocess.channels());
  train::name_common_sections(fields);
  fields.refuse_unknown();
  return o;
}

}  // namespace qna::tasks
