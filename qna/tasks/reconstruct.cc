#include "qna/tasks/reconstruct.h"

#include "qna/base/error.h"
#include "qna/image/color.h"
#include "qna/tasks/image_metrics.h"
#include "qna/tasks/picture_tensor.h"
#include "qna/viz/draw.h"

namespace qna::tasks {

using torch::Tensor;

Tensor to_unit(const Tensor& x, const data::Preprocess& preprocess) {
  return x.to(torch::kFloat) * torch::tensor(preprocess.std) + torch::tensor(preprocess.mean);
}

image::Image to_picture(const Tensor& unit) {
  const Tensor bytes = (unit.clamp(0, 1) * 255).round().to(torch::kByte).contiguous();
  image::Image picture = image::make_image(bytes.size(0), bytes.size(1), bytes.size(2));
  std::copy_n(bytes.const_data_ptr<uint8_t>(), bytes.numel(), picture.pixels.begin());
  return picture;
}

image::Image Reconstructed::side_by_side() const {
  constexpr int64_t kGap = 4;
  image::Image both = viz::blank(original.height, 2 * original.width + kGap, {255, 255, 255});
  viz::paste(both, image::to_channels(original, 3), 0, 0);
  viz::paste(both, image::to_channels(made, 3), 0, original.width + kGap);
  return both;
}

Reconstructed reconstruct(models::AutoEncoder& model, const image::Image& photo,
                          const data::Preprocess& preprocess) {
  const auto [height, width] = data::output_size({photo.height, photo.width}, preprocess);
  constexpr int64_t kMost = int64_t{1} << 26;
  check(height <= kMost / width, "a picture must have at most 2^26 pixels, got {} x {}", height,
        width);
  const torch::InferenceMode inference;
  Reconstructed result;
  result.original = data::fit(photo, preprocess);
  const Tensor x = picture_tensor(result.original, preprocess);
  const Tensor wanted = to_unit(x, preprocess);
  const Tensor made = to_unit(model->forward(x), preprocess).clamp(0, 1);
  result.made = to_picture(made[0]);
  result.l1 = mean_absolute_error(made, wanted).item<double>();
  result.psnr = psnr(made, wanted).item<double>();
  result.ssim = ssim(made, wanted).item<double>();
  return result;
}

}  // namespace qna::tasks
