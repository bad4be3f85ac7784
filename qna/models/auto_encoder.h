// The auto-encoders of "Learned Queries for Efficient Local Attention" (CVPR 2022): layers that
// halve the map, then layers that double it, with QnA or with convolutions.
//
//   auto model = qna::models::AutoEncoder(qna::config::AutoEncoderConfig{});
//   Tensor code = model->encode(images);  // [B, 256, 256, 3] -> [B, 8, 8, 256]
//   Tensor again = model->decode(code, 256, 256);
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "qna/config/auto_encoder.h"

namespace qna::models {

using config::AutoEncoderConfig;

class AutoEncoderImpl : public torch::nn::Cloneable<AutoEncoderImpl> {
 public:
  explicit AutoEncoderImpl(const AutoEncoderConfig& config);

  // x [B, H, W, channels], any height and width -> the same.
  torch::Tensor forward(const torch::Tensor& x);
  // -> [B, h, w, widths.back()], h and w rounded up
  torch::Tensor encode(const torch::Tensor& x);
  // Cut to the image's size, which the code must cover.
  torch::Tensor decode(const torch::Tensor& code, int64_t height, int64_t width);

  void reset() override;
  const AutoEncoderConfig& config() const { return config_; }

  torch::nn::Linear stem{nullptr};  // from pixels to the first features
  torch::nn::ModuleList encoder{nullptr};
  torch::nn::ModuleList decoder{nullptr};
  torch::nn::Linear head{nullptr};  // from the last features to pixels

 private:
  AutoEncoderConfig config_;
};
TORCH_MODULE(AutoEncoder);

}  // namespace qna::models
