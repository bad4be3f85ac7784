#include <algorithm>
#include <vector>

#include "qna/kernels/layer.h"
#include "qna/kernels/product.h"

namespace qna::kernels {
namespace {

// out [rows, columns] = in [rows, inner] * weight [inner, columns] + bias
template <typename T, typename Weight>
void project(double* out, const T* in, const Weight* weight, const Weight* bias, int64_t rows,
             int64_t inner, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = bias == nullptr ? 0 : bias[c];
      for (int64_t k = 0; k < inner; ++k) {
        sum += static_cast<double>(to_float(in[r * inner + k])) * weight[k * columns + c];
      }
      out[r * columns + c] = sum;
    }
}

std::vector<double> widen(const auto* table, int64_t count) {
  return table == nullptr ? std::vector<double>() : std::vector<double>(table, table + count);
}

}  // namespace

template <typename T>
void layer_forward_reference(const LayerArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.shape;
  const int64_t pixels = s.batch * s.height * s.width;
  const int64_t windows = s.batch * s.out_height() * s.out_width();
  std::vector<double> scores(pixels * s.scores());
  std::vector<double> values(pixels * s.features());
  std::vector<double> z(windows * s.outputs() * s.features());
  std::vector<double> y(windows * s.outputs() * args.out_features);
  const std::vector<double> bias = widen(args.bias, s.taps() * s.scores());
  const std::vector<double> tap_weights = widen(args.tap_weights, s.taps() * s.scores());

  project<T, Table<T>>(scores.data(), args.x, args.score_weight, nullptr, pixels,
                       args.in_features, s.scores());
  project(values.data(), args.x, args.value_weight, args.value_bias, pixels, args.in_features,
          s.features());
  const ValueLayout layout{s.features(), s.head_dim, 1};
  window_attention_forward_reference<double>(
      {.shape = s,
       .scores = scores.data(),
       .score_stride = s.scores(),
       .values = values.data(),
       .value_layout = layout,
       .bias = args.bias == nullptr ? nullptr : bias.data(),
       .tap_weights = args.tap_weights == nullptr ? nullptr : tap_weights.data(),
       .mask = args.mask,
       .out = z.data(),
       .out_layout = layout},
      runtime);
  project(y.data(), z.data(), args.out_weight, args.out_bias, windows * s.outputs(), s.features(),
          args.out_features);

  // [B, OH, OW, s, s, features] -> [B, OH * s, OW * s, features]
  const int64_t f = args.upsample;
  for (int64_t n = 0; n < windows; ++n)
    for (int64_t l = 0; l < s.outputs(); ++l) {
      const int64_t row = n / s.out_width() * f + l / f;  // of all images
      const int64_t column = n % s.out_width() * f + l % f;
      T* out = args.y + (row * s.out_width() * f + column) * args.out_features;
      for (int64_t c = 0; c < args.out_features; ++c) {
        const double value = y[(n * s.outputs() + l) * args.out_features + c];
        if constexpr (std::is_same_v<T, double>) {
          out[c] = value;
        } else {
          out[c] = from_float<T>(static_cast<float>(value));
        }
      }
    }
}

void product_reference(const ProductArgs& args, Runtime&) {
  std::vector<double> c(args.rows * args.columns);
  project<float, float>(c.data(), args.a, args.b, nullptr, args.rows, args.inner, args.columns);
  std::copy(c.begin(), c.end(), args.c);
}

#define QNA_INSTANTIATE(T) \
  template void layer_forward_reference<T>(const LayerArgs<T>&, Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(double)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
