#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "qna/base/error.h"
#include "qna/base/runtime.h"
#include "qna/predict/evaluate.h"
#include "qna/predict/grid_energy.h"
#include "qna/predict/reconstruct.h"

namespace qna::predict {
namespace {

// Those at which the network's layers could leave grids, as long as the images are large enough.
std::vector<int64_t> periods_of(const config::AutoEncoderConfig& config, int64_t height,
                                int64_t width) {
  std::vector<int64_t> periods;
  for (int64_t period = config.factor; period < config.stride(); period *= config.factor) {
    const bool fits = height % period == 0 && width % period == 0;
    if (!fits || std::min(height, width) < 8 * period) break;
    periods.push_back(period);
  }
  return periods;
}

// The images of a batch that could be read, one behind the other.
std::vector<float> readable(const data::Batch& batch) {
  const int64_t numbers = batch.height * batch.width * batch.channels;
  std::vector<float> pixels;
  for (int64_t i = 0; i < batch.count; ++i) {
    if (batch.labels[i] < 0) continue;
    const float* const from = batch.pixels.data() + i * numbers;
    pixels.insert(pixels.end(), from, from + numbers);
  }
  return pixels;
}

}  // namespace

Reconstruction evaluate_auto_encoder(const engine::Model& model, data::Loader& loader,
                                     const config::Preprocess& preprocess, engine::Context& context,
                                     const EvaluationRun& run) {
  const auto [height, width] = preprocess.crop;
  check(height > 0, "{}: preprocess.crop must be a size, so that all pictures have it, got 0",
        model.origin());
  const int64_t channels = preprocess.channels();
  const GridEnergy grids(height, width, periods_of(model.auto_encoder(), height, width));
  ThreadRuntime workers(context.threads());
  // Of each image and summed: 1, the four metrics with the factors of the last, the powers.
  constexpr size_t kMetrics = 8;
  const size_t terms = kMetrics + grids.size();
  std::vector<double> sums(terms);
  std::vector<double> of_images;
  loader.start(0);
  int64_t done = 0;
  while (std::optional<data::Batch> batch = loader.next()) {
    std::vector<float> wanted = readable(*batch);
    const int64_t numbers = height * width * channels;
    const int64_t count = static_cast<int64_t>(wanted.size()) / numbers;
    if (count > 0) {
      std::vector<float> made(wanted.size());
      model.reconstruct({.batch = count, .height = height, .width = width, .pixels = wanted.data()},
                        made.data(), context);
      to_unit(wanted, preprocess);
      to_unit(made, preprocess);
      for (float& number : made) number = std::clamp(number, 0.0f, 1.0f);
      of_images.resize(count * terms);
      workers.for_each(count, [&](int64_t i, int) {
        const ImageView a{height, width, channels, made.data() + i * numbers};
        const ImageView b{height, width, channels, wanted.data() + i * numbers};
        double* const to = of_images.data() + i * terms;
        to[0] = 1;
        to[1] = mean_absolute_error(a, b);
        to[2] = mean_squared_error(a, b);
        to[3] = psnr(a, b);
        const Ssim near = ssim(a, b);
        std::ranges::copy(std::array{near.all, near.light, near.contrast, near.structure}, to + 4);
        const std::vector<double> power = grids.power_of(a, b);
        std::copy(power.begin(), power.end(), to + kMetrics);
      });
      // In the order of the images, whoever worked on them.
      for (size_t i = 0; i < of_images.size(); ++i) sums[i % terms] += of_images[i];
    }
    loader.recycle(std::move(*batch));
    run.tell(++done, loader.batches());
  }
  run.sum(sums);
  check(sums[0] > 0, "evaluation: none of the pictures could be read");
  Reconstruction result{.images = static_cast<int64_t>(sums[0]),
                        .l1 = sums[1] / sums[0],
                        .mse = sums[2] / sums[0],
                        .psnr = sums[3] / sums[0],
                        .ssim = {.all = sums[4] / sums[0],
                                 .light = sums[5] / sums[0],
                                 .contrast = sums[6] / sums[0],
                                 .structure = sums[7] / sums[0]}};
  const std::span<const double> power(sums.data() + kMetrics, grids.size());
  for (const int64_t period : grids.periods()) {
    result.grids.emplace_back(period, grids.energy(power, period));
  }
  return result;
}

Metrics metrics_of(const Reconstruction& r) {
  Metrics metrics = {{"L1", r.l1}, {"MSE", r.mse}, {"PSNR", r.psnr}, {"SSIM", r.ssim.all}};
  for (const auto& [period, energy] : r.grids) {
    metrics.emplace_back(fmt::format("grid{}", period), energy);
  }
  return metrics;
}

Metrics ssim_factors(const Reconstruction& r) {
  return {{"SSIM_light", r.ssim.light},
          {"SSIM_contrast", r.ssim.contrast},
          {"SSIM_structure", r.ssim.structure}};
}

}  // namespace qna::predict
