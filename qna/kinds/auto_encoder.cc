// What can be done with an auto-encoder: see kind.h.
#include <fmt/format.h>

#include <filesystem>

#include "qna/data/image_dataset.h"
#include "qna/data/subset.h"
#include "qna/kinds/evaluation.h"
#include "qna/kinds/preview.h"
#include "qna/recipe/auto_encoding_options.h"
#include "qna/report/metric_text.h"

namespace qna::kinds {
namespace {

Measured evaluate_auto_encoder(const engine::Model& model, const EvaluateOptions& o,
                               const EvaluateWatcher& watcher) {
  check_no_objects(model, o);
  check_no_shifts(model, o);
  std::shared_ptr<const data::Dataset> dataset = std::make_shared<data::ImageDataset>(o.data);
  if (!dataset->left_out().empty()) watcher.note(dataset->left_out());
  check(o.last <= dataset->size(), "'last' must be at most {}, as {} has, got {}", dataset->size(),
        o.data, o.last);
  if (o.last > 0 && o.last < dataset->size()) dataset = data::hold_back(dataset, o.last).val;
  const data::LoaderOptions options = loader_options(o, /*usual_batch=*/64);
  data::Loader loader(dataset, model.info().preprocess, std::nullopt, {}, options);
  engine::Context context(o.threads);
  const predict::Reconstruction result =
      predict::evaluate_auto_encoder(model, loader, model.info().preprocess, context,
                                     told_in_images(watcher, options.batch, dataset->size()));
  Measured measured{.images = result.images, .broken = loader.broken()};
  for (const predict::Metrics& metrics :
       {predict::metrics_of(result), predict::ssim_factors(result)}) {
    for (const auto& [name, value] : metrics) {
      measured.numbers.push_back(
          {name, value, fmt::format("{:14} {:>8}", name, report::metric_text(value))});
    }
  }
  return measured;
}

Preview preview_auto_encoding(const train::Recipe& recipe, const PreviewOptions& o) {
  const tasks::AutoEncodingOptions options = tasks::auto_encoding_options(recipe.sections);
  const data::ImageDataset dataset(options.path);
  const int64_t count = dataset.size() - options.val_count;
  check(count >= 1, "recipe: data.val_count must be less than {}, as {} has pictures, got {}",
        dataset.size(), options.path, options.val_count);
  Preview made{.title = fmt::format("{}: {} pictures to train", options.path, count),
               .subtitle = "as they go in"};
  for (const int64_t index : places(o, count)) {
    const image::Image image = dataset.read(index, options.preprocess.channels());
    made.cells.push_back({to_cell(data::fit(image, options.preprocess)),
                          std::filesystem::path(dataset.name(index)).filename().string()});
  }
  return made;
}

Plan plan_auto_encoder(const train::Recipe& recipe) {
  const tasks::AutoEncodingOptions options = tasks::auto_encoding_options(recipe.sections);
  return {options.config, data::ImageDataset(options.path).size() - options.val_count};
}

void run_auto_encoder(const engine::Model& model, const engine::Images& images,
                      engine::Context& context) {
  std::vector<float> made(
      static_cast<size_t>(images.batch * images.height * images.width * model.channels()));
  model.reconstruct(images, made.data(), context);
}

std::vector<std::string> auto_encoder_remarks(const config::NetworkConfig& network) {
  const auto& config = std::get<config::AutoEncoderConfig>(network);
  return {fmt::format("code: {} features for every {} x {} pixels", config.widths.back(),
                      config.stride(), config.stride())};
}

}  // namespace

KindRow auto_encoder() {
  return {.kind = config::Kind::kAutoEncoder,
          .task = "auto-encoding",
          .evaluate = evaluate_auto_encoder,
          .preview = preview_auto_encoding,
          .plan = plan_auto_encoder,
          .run = run_auto_encoder,
          .remarks = auto_encoder_remarks};
}

}  // namespace qna::kinds
