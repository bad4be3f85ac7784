#include "qna/tasks/auto_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/data/picture_dataset.h"
#include "qna/format/fields.h"
#include "qna/tasks/batch_tensor.h"
#include "qna/tasks/image_metrics.h"
#include "qna/tasks/reconstruct.h"

namespace qna::tasks {
namespace {

using torch::Tensor;

// The pictures of a batch that could be read.
Tensor readable(const data::Batch& batch, int64_t first, int64_t last) {
  std::vector<int64_t> slots;
  for (int64_t i = first; i < last; ++i) {
    if (batch.labels[i] >= 0) slots.push_back(i);
  }
  const Tensor all = images_of(batch);
  if (static_cast<int64_t>(slots.size()) == last - first) return all.slice(0, first, last);
  return all.index_select(0, torch::tensor(slots, torch::kLong));
}

// InstanceNorm of a map of one pixel is 0 for every picture.
void check_size(const models::AutoEncoderConfig& config, const std::array<int64_t, 2>& size) {
  constexpr int64_t kLeast = 7;  // for SSIM
  check(size[0] >= kLeast && size[1] >= kLeast,
        "recipe: preprocess.crop must be at least {} x {}, got {} x {}", kLeast, kLeast, size[0],
        size[1]);
  if (config.encoder == models::EncoderLayer::kQnA) return;
  const bool before_pooling = config.encoder == models::EncoderLayer::kConvPool;
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
    o.config = models::auto_encoder_config_from_json(model.table("config").object());
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
  o.preprocess = data::preprocess_from_json(preprocess, "recipe: preprocess");
  check(o.preprocess.crop[0] > 0, "recipe: preprocess.crop must be a size, got 0");
  check_size(o.config, o.preprocess.crop);
  check(o.preprocess.channels() == o.config.channels,
        "recipe: preprocess.mean must have {} numbers, as model.config.channels, got {}",
        o.config.channels, o.preprocess.channels());
  fields.refuse_unknown();
  return o;
}

Reconstruction evaluate_reconstruction(models::AutoEncoder& model, data::Loader& loader,
                                       const data::Preprocess& preprocess, const Run& run,
                                       const Task::Tell& tell) {
  const torch::InferenceMode inference;
  Tensor sums = torch::zeros({5}, torch::kDouble);  // pictures, and of each metric
  Tensor power = torch::zeros({preprocess.crop[0], preprocess.crop[1]}, torch::kDouble);
  loader.start(0);
  int64_t done = 0;
  while (std::optional<data::Batch> batch = loader.next()) {
    const Tensor images = readable(*batch, 0, batch->count);
    if (images.size(0) > 0) {
      const Tensor wanted = to_unit(images, preprocess);
      const Tensor made = to_unit(model->forward(images), preprocess).clamp(0, 1);
      sums[0] += static_cast<double>(images.size(0));
      sums[1] += mean_absolute_error(made, wanted).sum();
      sums[2] += mean_squared_error(made, wanted).sum();
      sums[3] += psnr(made, wanted).sum();
      sums[4] += ssim(made, wanted).sum();
      power += error_power(made - wanted);
    }
    loader.recycle(std::move(*batch));
    tell(++done, loader.batches());
  }
  run.sum(sums);
  run.sum(power);
  const double count = sums[0].item<double>();
  check(count > 0, "evaluation: none of the pictures could be read");
  const auto mean = [&](int64_t i) { return sums[i].item<double>() / count; };
  return {.l1 = mean(1), .mse = mean(2), .psnr = mean(3), .ssim = mean(4), .error_power = power};
}

Metrics metrics_of(const Reconstruction& r, const models::AutoEncoderConfig& config) {
  Metrics metrics = {{"L1", r.l1}, {"MSE", r.mse}, {"PSNR", r.psnr}, {"SSIM", r.ssim}};
  const int64_t height = r.error_power.size(0), width = r.error_power.size(1);
  for (int64_t period = config.factor; period < config.stride(); period *= config.factor) {
    const bool fits = height % period == 0 && width % period == 0;
    if (!fits || std::min(height, width) < 8 * period) break;
    metrics.emplace_back(fmt::format("grid{}", period), grid_energy(r.error_power, period));
  }
  return metrics;
}

AutoEncoding::AutoEncoding(const nlohmann::json& sections, const Run& run)
    : run_(run), options_(auto_encoding_options(sections)) {
  const auto whole = std::make_shared<data::PictureDataset>(options_.path);
  check(options_.val_count >= 1 && options_.val_count < whole->size(),
        "recipe: data.val_count must be from 1 to {}, since {} has {} pictures, got {}",
        whole->size() - 1, options_.path, whole->size(), options_.val_count);
  const data::HeldBack sets = data::hold_back(whole, options_.val_count);
  train_set_ = sets.train;
  val_set_ = sets.val;
  model_ = models::AutoEncoder(options_.config);
  if (!options_.weights.empty()) checkpoint::load_auto_encoder_weights(model_, options_.weights);
  const auto loader = [&](const auto& set, bool training) {
    return std::make_unique<data::Loader>(set, options_.preprocess, std::nullopt, data::Mix{},
                                          loader_options(options_.reading, run, training));
  };
  train_ = loader(train_set_, true);
  val_ = loader(val_set_, false);
}

std::vector<std::string> AutoEncoding::describe() const {
  const int64_t parameters = models::parameter_count(options_.config);
  const auto config = models::to_json(options_.config);
  const auto& size = options_.preprocess.crop;
  return {fmt::format(
              "model  auto-encoder {} / {}, {:.2f} M parameters, code 1/{} of {} x {} pixels",
              config["encoder"].get<std::string>(), config["decoder"].get<std::string>(),
              static_cast<double>(parameters) / 1e6, options_.config.stride(), size[0], size[1]),
          fmt::format("data   {}: {} pictures to train, {} to validate", options_.path,
                      train_set_->size(), val_set_->size())};
}

int64_t AutoEncoding::next() {
  train_->recycle(std::move(batch_));
  std::optional<data::Batch> batch = train_->next();
  check(batch.has_value(), "auto-encoding: there is no further batch in this epoch");
  batch_ = std::move(*batch);
  return batch_.total;
}

Tensor AutoEncoding::loss(int64_t part, int64_t parts) {
  const Tensor images =
      readable(batch_, batch_.count * part / parts, batch_.count * (part + 1) / parts);
  if (images.size(0) == 0) {
    // No picture here, but the other processes wait for our gradients: zeros.
    const auto& size = options_.preprocess.crop;
    return model_->forward(torch::zeros({1, size[0], size[1], options_.config.channels})).sum() * 0;
  }
  const Tensor made = to_unit(model_->forward(images), options_.preprocess);
  const Tensor wanted = to_unit(images, options_.preprocess);
  const double numbers = static_cast<double>(images[0].numel());
  return (made - wanted).abs().sum() / (numbers * static_cast<double>(batch_.total));
}

Metrics AutoEncoding::evaluate(const Tell& tell) {
  return metrics_of(evaluate_reconstruction(model_, *val_, options_.preprocess, run_, tell),
                    options_.config);
}

void AutoEncoding::save(const std::string& path, const nlohmann::json& training,
                        const NamedTensors& extra) {
  checkpoint::save_auto_encoder(
      path, model_, {.preprocess = options_.preprocess, .training = training}, at::kFloat, extra);
}

std::vector<std::string> AutoEncoding::broken() const {
  std::vector<std::string> all = train_->broken();
  for (const std::string& line : val_->broken()) all.push_back(line);
  return all;
}

void AutoEncoding::add_to_report(report::TrainingReport& report) {
  constexpr int64_t kPictures = 12;
  report::Gallery gallery{.title = "Originals, and what became of them", .pictures = {}};
  const int64_t count = std::min(kPictures, val_set_->size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t picture = i * val_set_->size() / count;
    try {
      const image::Image photo = val_set_->read(picture, options_.preprocess.channels());
      gallery.pictures.push_back(
          {reconstruct(model_, photo, options_.preprocess).side_by_side(),
           std::filesystem::path(val_set_->name(picture)).filename().string()});
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
  report.galleries.push_back(std::move(gallery));
}

std::vector<std::string> AutoEncoding::next_commands(const std::string& file) const {
  return {fmt::format("qna reconstruct {} PICTURE... -o again/", file)};
}

}  // namespace qna::tasks
