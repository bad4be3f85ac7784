#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "qna/kernels/dense_reference.h"
#include "qna/kernels/product.h"
#include "qna/kernels/qna_layer.h"

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

// [B, OH, OW, s, s] -> [B, OH * s, OW * s]: the pixel of y that holds output n.
template <typename Args>
int64_t output_pixel(const Args& args, int64_t n) {
  const int64_t f = args.upsample;
  const int64_t columns = args.shape.out_width();
  const int64_t window = n / args.shape.outputs();
  const int64_t l = n % args.shape.outputs();
  const int64_t row = window / columns * f + l / f;  // of all images
  return row * columns * f + window % columns * f + l % f;
}

// (x - mean) / sqrt(variance + epsilon) of each row
std::vector<double> normalized(const auto* x, int64_t rows, int64_t count, const Norm& norm) {
  std::vector<double> out(rows * count);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    double variance = 0;
    const auto at = [&](int64_t c) { return static_cast<double>(to_float(x[r * count + c])); };
    for (int64_t c = 0; c < count; ++c) mean += at(c) / count;
    for (int64_t c = 0; c < count; ++c) variance += (at(c) - mean) * (at(c) - mean) / count;
    for (int64_t c = 0; c < count; ++c) {
      out[r * count + c] = (at(c) - mean) / std::sqrt(variance + norm.epsilon);
    }
  }
  return out;
}

// Calls visit(pointer to the member, elements, value where it is null) for all weights and tables.
template <typename T, typename Visit>
void for_each_weight(QnALayerArgs<T>& args, const Visit& visit) {
  const WindowShape& s = args.shape;
  visit(&args.score_weight, args.in_features * s.scores(), 0);
  visit(&args.value_weight, args.in_features * s.features(), 0);
  visit(&args.value_bias, s.features(), 0);
  visit(&args.out_weight, s.features() * args.out_features, 0);
  visit(&args.out_bias, args.out_features, 0);
  visit(&args.bias, s.taps() * s.scores(), 0);
  visit(&args.tap_weights, s.taps() * s.scores(), 1);
}

std::vector<double> widen(const auto* table, int64_t count) {
  return table == nullptr ? std::vector<double>() : std::vector<double>(table, table + count);
}

// Images whose factor is 0 are masked as a whole.
template <typename T>
std::vector<uint8_t> mask_without_dropped(const WindowShape& s, const uint8_t* mask,
                                          const Table<T>* drop_factor) {
  const int64_t pixels = s.height * s.width;
  std::vector<uint8_t> all(s.batch * pixels);
  for (int64_t n = 0; n < s.batch * pixels; ++n) {
    const bool dropped = drop_factor != nullptr && drop_factor[n / pixels] == 0;
    all[n] = dropped ? 0 : mask == nullptr ? 1 : mask[n];
  }
  return all;
}

}  // namespace

template <typename T>
PackedWeights pack_qna_layer_reference(const QnALayerArgs<T>& original, Runtime&) {
  QnALayerArgs<T> args = original;
  int64_t total = 0;
  for_each_weight(args, [&](const Table<T>**, int64_t count, int) { total += count; });
  PackedWeights packed(total * sizeof(Table<T>));
  packed.type = args.weight_type;
  auto* out = static_cast<Table<T>*>(packed.memory());
  for_each_weight(args, [&](const Table<T>** member, int64_t count, int otherwise) {
    const bool weight =
        member == &args.score_weight || member == &args.value_weight || member == &args.out_weight;
    for (int64_t i = 0; i < count; ++i) {
      *out = *member == nullptr ? static_cast<Table<T>>(otherwise) : (*member)[i];
      if (weight && args.weight_type != WeightType::kFloat32) {
        *out = as_kept(static_cast<float>(*out), args.weight_type);
      }
      ++out;
    }
  });
  return packed;
}

template <typename T>
void qna_layer_forward_reference(const QnALayerArgs<T>& original, Runtime& runtime) {
  QnALayerArgs<T> args = original;
  if (args.packed != nullptr) {
    const auto* from = static_cast<const Table<T>*>(args.packed->memory());
    for_each_weight(args, [&](const Table<T>** member, int64_t count, int) {
      *member = from;
      from += count;
    });
  }
  const WindowShape& s = args.shape;
  const std::vector<uint8_t> mask = mask_without_dropped<T>(s, args.mask, args.drop_factor);
  const int64_t pixels = s.batch * s.height * s.width;
  const int64_t windows = s.batch * s.out_height() * s.out_width();
  std::vector<double> scores(pixels * s.scores());
  std::vector<double> values(pixels * s.features());
  std::vector<double> z(windows * s.outputs() * s.features());
  std::vector<double> y(windows * s.outputs() * args.out_features);
  const std::vector<double> bias = widen(args.bias, s.taps() * s.scores());
  const std::vector<double> tap_weights = widen(args.tap_weights, s.taps() * s.scores());

  const auto project_in = [&](const auto* x) {
    using In = std::remove_cvref_t<decltype(*x)>;
    project<In, Table<T>>(scores.data(), x, args.score_weight, nullptr, pixels, args.in_features,
                          s.scores());
    project(values.data(), x, args.value_weight, args.value_bias, pixels, args.in_features,
            s.features());
  };
  if (args.norm.wanted) {
    project_in(normalized(args.x, pixels, args.in_features, args.norm).data());
  } else {
    project_in(args.x);
  }
  const ValueLayout layout{s.features(), s.head_dim, 1};
  window_attention_forward_reference<double>(
      {.shape = s,
       .scores = scores.data(),
       .score_stride = s.scores(),
       .values = values.data(),
       .value_layout = layout,
       .bias = args.bias == nullptr ? nullptr : bias.data(),
       .tap_weights = args.tap_weights == nullptr ? nullptr : tap_weights.data(),
       .mask = mask.data(),
       .out = z.data(),
       .out_layout = layout},
      runtime);
  project(y.data(), z.data(), args.out_weight, args.out_bias, windows * s.outputs(), s.features(),
          args.out_features);

  for (int64_t n = 0; n < windows * s.outputs(); ++n)
    for (int64_t c = 0; c < args.out_features; ++c) {
      const int64_t at = output_pixel(args, n) * args.out_features + c;
      const double residual =
          args.residual == nullptr ? 0.0 : static_cast<double>(to_float(args.residual[at]));
      const double drop_factor =
          args.drop_factor == nullptr
              ? 1
              : args.drop_factor[n / (s.out_height() * s.out_width() * s.outputs())];
      args.y[at] = from_double<T>(residual + drop_factor * y[n * args.out_features + c]);
    }
  if constexpr (std::is_same_v<T, float>) {
    if (args.mlp != nullptr) {
      mlp_reference({.rows = windows,
                     .x = args.y,
                     .norm = args.mlp->norm,
                     .expand = args.mlp->expand,
                     .activation = args.mlp->activation,
                     .contract = args.mlp->contract,
                     .y = args.y},
                    runtime);
    }
  }
  for (int64_t n = 0; args.saved != nullptr && n < pixels; ++n) {
    Table<T>* saved = args.saved + n * (s.features() + s.scores());
    for (int64_t c = 0; c < s.features(); ++c) {  // (dim, heads) order
      saved[c] =
          static_cast<Table<T>>(values[n * s.features() + c % s.heads * s.head_dim + c / s.heads]);
    }
    for (int64_t c = 0; c < s.scores(); ++c) {
      saved[s.features() + c] = static_cast<Table<T>>(scores[n * s.scores() + c]);
    }
  }
}

template <typename T>
void qna_layer_backward_reference(const QnALayerBackwardArgs<T>& args, Runtime& runtime) {
  const WindowShape& s = args.shape;
  const std::vector<uint8_t> mask = mask_without_dropped<T>(s, args.mask, args.drop_factor);
  const int64_t pixels = s.batch * s.height * s.width;
  const int64_t outputs = s.batch * s.out_height() * s.out_width() * s.outputs();
  const int64_t in = args.in_features;
  const int64_t out = args.out_features;
  const std::vector<double> bias = widen(args.bias, s.taps() * s.scores());
  const std::vector<double> tap_weights = widen(args.tap_weights, s.taps() * s.scores());
  const double* bias_data = args.bias == nullptr ? nullptr : bias.data();
  const double* tap_data = args.tap_weights == nullptr ? nullptr : tap_weights.data();

  // The saved maps, values back in [heads, dim] order; and dy by window and query.
  std::vector<double> scores(pixels * s.scores());
  std::vector<double> values(pixels * s.features());
  for (int64_t n = 0; n < pixels; ++n) {
    const Table<T>* saved = args.saved + n * (s.features() + s.scores());
    for (int64_t c = 0; c < s.features(); ++c) {
      values[n * s.features() + c % s.heads * s.head_dim + c / s.heads] = saved[c];
    }
    for (int64_t c = 0; c < s.scores(); ++c) {
      scores[n * s.scores() + c] = saved[s.features() + c];
    }
  }
  std::vector<double> dy(outputs * out);
  for (int64_t n = 0; n < outputs; ++n) {
    const double drop_factor =
        args.drop_factor == nullptr ? 1 : args.drop_factor[n / (outputs / s.batch)];
    for (int64_t c = 0; c < out; ++c) {
      if (drop_factor == 0) continue;
      dy[n * out + c] = drop_factor * to_float(args.grad_y[output_pixel(args, n) * out + c]);
    }
  }

  // z = attention, dz = dy Wo^T, dWo = z^T dy, dbo = sum of dy
  const ValueLayout layout{s.features(), s.head_dim, 1};
  std::vector<double> z(outputs * s.features());
  window_attention_forward_reference<double>({s, scores.data(), s.scores(), values.data(), layout,
                                              bias_data, tap_data, mask.data(), z.data(), layout},
                                             runtime);
  std::vector<double> dz(outputs * s.features(), 0.0);
  for (int64_t k = 0; k < s.features(); ++k)
    for (int64_t c = 0; c < out; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < outputs; ++n) {
        dz[n * s.features() + k] += dy[n * out + c] * args.out_weight[k * out + c];
        sum += z[n * s.features() + k] * dy[n * out + c];
      }
      args.grad_out_weight[k * out + c] = static_cast<Table<T>>(sum);
    }
  for (int64_t c = 0; args.grad_out_bias != nullptr && c < out; ++c) {
    double sum = 0;
    for (int64_t n = 0; n < outputs; ++n) sum += dy[n * out + c];
    args.grad_out_bias[c] = static_cast<Table<T>>(sum);
  }

  std::vector<double> ds(scores.size());
  std::vector<double> dv(values.size());
  std::vector<double> dbias(s.taps() * s.scores());
  std::vector<double> dtap(s.taps() * s.scores());
  window_attention_backward_reference<double>(
      {s, dz.data(), layout, scores.data(), s.scores(), values.data(), layout, bias_data, tap_data,
       mask.data(), ds.data(), s.scores(), dv.data(), layout, dbias.data(), dtap.data()},
      runtime);
  std::copy(dbias.begin(), dbias.end(), args.grad_bias);
  std::copy(dtap.begin(), dtap.end(), args.grad_tap_weights);

  // dx = dv Wv^T + ds A^T, dWv = x^T dv, dA = x^T ds, dbv = sum of dv, of a normalised x if wanted
  std::vector<double> x(pixels * in);
  for (int64_t i = 0; i < pixels * in; ++i) x[i] = to_float(args.x[i]);
  if (args.norm.wanted) x = normalized(args.x, pixels, in, args.norm);
  std::vector<double> dx(pixels * in, 0.0);
  const auto project_back = [&](const std::vector<double>& d, const Table<T>* weight,
                                Table<T>* grad_weight, int64_t columns) {
    for (int64_t k = 0; k < in; ++k)
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t n = 0; n < pixels; ++n) {
          if (mask[n] == 0) continue;  // whatever x holds there
          dx[n * in + k] += d[n * columns + c] * weight[k * columns + c];
          sum += x[n * in + k] * d[n * columns + c];
        }
        grad_weight[k * columns + c] = static_cast<Table<T>>(sum);
      }
  };
  project_back(dv, args.value_weight, args.grad_value_weight, s.features());
  project_back(ds, args.score_weight, args.grad_score_weight, s.scores());
  for (int64_t c = 0; args.grad_value_bias != nullptr && c < s.features(); ++c) {
    double sum = 0;
    for (int64_t n = 0; n < pixels; ++n) sum += dv[n * s.features() + c];
    args.grad_value_bias[c] = static_cast<Table<T>>(sum);
  }
  for (int64_t n = 0; args.norm.wanted && n < pixels; ++n) {
    // dx = (dn - mean(dn) - n mean(dn n)) / sqrt(variance + epsilon)
    double* row = dx.data() + n * in;
    if (mask[n] == 0) continue;  // 0, whatever x holds there
    double mean_x = 0, variance = 0, mean = 0, product = 0;
    for (int64_t c = 0; c < in; ++c)
      mean_x += to_float(args.x[n * in + c]) / static_cast<double>(in);
    for (int64_t c = 0; c < in; ++c) {
      variance += std::pow(to_float(args.x[n * in + c]) - mean_x, 2) / static_cast<double>(in);
      mean += row[c] / static_cast<double>(in);
      product += row[c] * x[n * in + c] / static_cast<double>(in);
    }
    for (int64_t c = 0; c < in; ++c) {
      row[c] = (row[c] - mean - x[n * in + c] * product) / std::sqrt(variance + args.norm.epsilon);
    }
  }
  for (int64_t i = 0; args.grad_x != nullptr && i < pixels * in; ++i) {
    args.grad_x[i] = from_double<T>(dx[i] + (args.residual_is_x ? to_float(args.grad_y[i]) : 0));
  }
}

void product_reference(const ProductArgs& args, Runtime&) {
  std::vector<double> c(args.rows * args.columns);
  project<float, float>(c.data(), args.a, args.b, nullptr, args.rows, args.inner, args.columns);
  std::copy(c.begin(), c.end(), args.c);
}

#define QNA_INSTANTIATE(T)                                                              \
  template void qna_layer_forward_reference<T>(const QnALayerArgs<T>&, Runtime&);       \
  template PackedWeights pack_qna_layer_reference<T>(const QnALayerArgs<T>&, Runtime&); \
  template void qna_layer_backward_reference<T>(const QnALayerBackwardArgs<T>&, Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(double)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
