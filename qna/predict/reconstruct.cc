#include "qna/predict/reconstruct.h"

#include <algorithm>
#include <cmath>

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/predict/image_metrics.h"
#include "qna/predict/input.h"
#include "qna/viz/draw.h"

namespace qna::predict {

void to_unit(std::span<float> numbers, const config::Preprocess& preprocess) {
  const size_t channels = preprocess.mean.size();
  check(numbers.size() % channels == 0, "to_unit: there must be {} numbers per pixel, got {}",
        channels, numbers.size());
  for (size_t i = 0; i < numbers.size(); i += channels)
    for (size_t c = 0; c < channels; ++c) {
      numbers[i + c] = numbers[i + c] * preprocess.std[c] + preprocess.mean[c];
    }
}

image::Image to_image(std::span<const float> unit, int64_t height, int64_t width,
                      int64_t channels) {
  image::Image image = image::make_image(height, width, channels);
  check(unit.size() == image.pixels.size(),
        "to_image: a picture of {} x {} x {} must have {} numbers, got {}", height, width, channels,
        image.pixels.size(), unit.size());
  for (size_t i = 0; i < unit.size(); ++i) {
    // Written so that what is no number becomes black.
    const float number = unit[i] > 0 ? std::min(unit[i], 1.0f) : 0;
    image.pixels[i] = static_cast<uint8_t>(std::nearbyint(number * 255));
  }
  return image;
}

image::Image Reconstructed::side_by_side() const {
  constexpr int64_t kGap = 4;
  image::Image both = viz::blank(original.height, 2 * original.width + kGap, {255, 255, 255});
  viz::paste(both, image::to_channels(original, 3), 0, 0);
  viz::paste(both, image::to_channels(made, 3), 0, original.width + kGap);
  return both;
}

Reconstructed reconstruct(const engine::Model& model, const image::Image& image,
                          const config::Preprocess& preprocess, engine::Context& context) {
  model.auto_encoder();  // or else it says what the model is
  const auto [height, width] = data::output_size({image.height, image.width}, preprocess);
  constexpr int64_t kMost = int64_t{1} << 26;
  check(height <= kMost / width, "a picture must have at most 2^26 pixels, got {} x {}", height,
        width);
  Reconstructed result;
  result.original = data::fit(image, preprocess);
  const Input input(result.original, preprocess);
  std::vector<float> wanted = input.pixels();
  std::vector<float> made(wanted.size());
  model.reconstruct(input.images(), made.data(), context);
  to_unit(wanted, preprocess);
  to_unit(made, preprocess);
  for (float& number : made) number = std::clamp(number, 0.0f, 1.0f);
  result.made = to_image(made, height, width, image.channels);
  const ImageView a{height, width, image.channels, made.data()};
  const ImageView b{height, width, image.channels, wanted.data()};
  result.l1 = mean_absolute_error(a, b);
  result.psnr = psnr(a, b);
  result.ssim = ssim(a, b).all;
  return result;
}

}  // namespace qna::predict
