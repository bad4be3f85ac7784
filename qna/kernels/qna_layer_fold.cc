#include "qna/kernels/qna_layer_fold.h"

#include <algorithm>
#include <cmath>

#include "qna/kernels/scratch.h"

namespace qna::kernels {
namespace {

constexpr int64_t kRows = 32;  // of the weights, for one task

template <typename T>
T dot(const T* a, const T* b, int64_t count) {
  constexpr int64_t kLanes = 8;  // sums side by side, for the compiler's vectors
  T sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) sums[j] += a[i + j] * b[i + j];
  T sum = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// to += factor * from
template <typename T>
void add(T* __restrict to, T factor, const T* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <typename T>
double query_length(const QnALayerFold<T>& in, const T* query) {
  double square = 0;
  for (int64_t d = 0; d < in.head_dim; ++d) square += static_cast<double>(query[d]) * query[d];
  return std::sqrt(square);
}

// What a query of that length is multiplied by.
template <typename T>
double query_factor(const QnALayerFold<T>& in, double length) {
  return 1 / ((in.normalize ? length + 1e-6 : 1) * std::sqrt(static_cast<double>(in.head_dim)));
}

template <typename T>
void scale_queries(const QnALayerFold<T>& in, T* q) {
  for (int64_t at = 0; at < in.queries * in.heads * in.head_dim; at += in.head_dim) {
    const double factor = query_factor(in, query_length(in, in.query + at));
    for (int64_t d = 0; d < in.head_dim; ++d) q[at + d] = static_cast<T>(in.query[at + d] * factor);
  }
}

// use(first row, end, task) for parts of the weights' rows.
template <typename Use>
void for_rows(int64_t rows, Runtime& runtime, const Use& use) {
  runtime.for_each((rows - 1) / kRows + 1, [&](int64_t task, int) {
    use(task * kRows, std::min(rows, (task + 1) * kRows), task);
  });
}

// The sum over all tasks of what each left in `parts`, [tasks][count]: in order, whoever did them.
template <typename T>
void add_parts(T* to, const T* parts, int64_t tasks, int64_t count) {
  for (int64_t task = 0; task < tasks; ++task) add(to, T{1}, parts + task * count, count);
}

}  // namespace

template <typename T>
void fold_qna_layer(const QnALayerFoldArgs<T>& args, Runtime& runtime) {
  const QnALayerFold<T>& in = args.in;
  const int64_t features = in.heads * in.head_dim;
  const int64_t tasks = (in.in_features - 1) / kRows + 1;
  const bool norm = in.norm_scale != nullptr;
  T* q = nullptr;
  T* biases = nullptr;  // [tasks][features]
  const auto carve = [&](ScratchArena arena) {
    q = arena.take<T>(in.queries * features);
    biases = arena.take<T>(norm ? tasks * features : 0);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  scale_queries(in, q);
  for_rows(in.in_features, runtime, [&](int64_t begin, int64_t end, int64_t task) {
    if (norm) std::fill_n(biases + task * features, features, T{0});
    for (int64_t c = begin; c < end; ++c) {
      const T scale = norm ? in.norm_scale[c] : T{1};
      T* scores = args.score_weight + c * in.queries * in.heads;
      for (int64_t l = 0; l < in.queries; ++l)
        for (int64_t h = 0; h < in.heads; ++h) {
          const int64_t at = h * in.head_dim;
          *scores++ =
              scale * dot(in.key_weight + c * features + at, q + l * features + at, in.head_dim);
        }
      if (!norm) continue;
      const T* values = in.value_weight + c * features;
      for (int64_t f = 0; f < features; ++f)
        args.value_weight[c * features + f] = scale * values[f];
      add(biases + task * features, in.norm_shift[c], values, features);
    }
  });
  if (!norm) return;
  if (in.value_bias != nullptr) {
    std::copy_n(in.value_bias, features, args.value_bias);
  } else {
    std::fill_n(args.value_bias, features, T{0});
  }
  add_parts(args.value_bias, biases, tasks, features);
}

template <typename T>
void fold_qna_layer_backward(const QnALayerFoldBackwardArgs<T>& args, Runtime& runtime) {
  const QnALayerFold<T>& in = args.in;
  const int64_t features = in.heads * in.head_dim;
  const int64_t tasks = (in.in_features - 1) / kRows + 1;
  const int64_t query_floats = in.queries * features;
  const bool norm = in.norm_scale != nullptr;
  T* q = nullptr;
  T* query_sums = nullptr;  // [tasks][L, heads, dim], of q
  const auto carve = [&](ScratchArena arena) {
    q = arena.take<T>(query_floats);
    query_sums = arena.take<T>(tasks * query_floats);
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  scale_queries(in, q);
  for_rows(in.in_features, runtime, [&](int64_t begin, int64_t end, int64_t task) {
    T* query_sum = query_sums + task * query_floats;
    std::fill_n(query_sum, query_floats, T{0});
    for (int64_t c = begin; c < end; ++c) {
      const T scale = norm ? in.norm_scale[c] : T{1};
      const T* keys = in.key_weight + c * features;
      T* grad_keys = args.grad_key_weight + c * features;
      std::fill_n(grad_keys, features, T{0});
      T grad_scale = 0;
      const T* grad_score = args.grad_score_weight + c * in.queries * in.heads;
      for (int64_t l = 0; l < in.queries; ++l)
        for (int64_t h = 0; h < in.heads; ++h, ++grad_score) {
          const int64_t at = h * in.head_dim;
          const T* query = q + l * features + at;
          if (norm) grad_scale += *grad_score * dot(keys + at, query, in.head_dim);
          add(grad_keys + at, scale * *grad_score, query, in.head_dim);
          add(query_sum + l * features + at, scale * *grad_score, keys + at, in.head_dim);
        }
      if (!norm) continue;
      const T* values = in.value_weight + c * features;
      const T* grad_values = args.grad_value_weight + c * features;
      const T shift = in.norm_shift[c];
      T* to = args.grad_in_value_weight + c * features;
      for (int64_t f = 0; f < features; ++f) {
        to[f] = scale * grad_values[f] + shift * args.grad_value_bias[f];
      }
      args.grad_norm_scale[c] = grad_scale + dot(values, grad_values, features);
      args.grad_norm_shift[c] = dot(values, args.grad_value_bias, features);
    }
  });
  std::fill_n(args.grad_query, query_floats, T{0});
  add_parts(args.grad_query, query_sums, tasks, query_floats);
  // Through the division by the length: dq factor, less what points along the query.
  for (int64_t at = 0; at < query_floats; at += in.head_dim) {
    const T* query = in.query + at;
    T* grad = args.grad_query + at;
    const double length = query_length(in, query);
    const double factor = query_factor(in, length);
    double along = 0;
    if (in.normalize && !in.stop_gradient && length > 0) {
      for (int64_t d = 0; d < in.head_dim; ++d) along += static_cast<double>(query[d]) * grad[d];
      along /= length * (length + 1e-6);
    }
    for (int64_t d = 0; d < in.head_dim; ++d) {
      grad[d] = static_cast<T>(factor * (grad[d] - along * query[d]));
    }
  }
}

template void fold_qna_layer(const QnALayerFoldArgs<float>&, Runtime&);
template void fold_qna_layer(const QnALayerFoldArgs<double>&, Runtime&);
template void fold_qna_layer_backward(const QnALayerFoldBackwardArgs<float>&, Runtime&);
template void fold_qna_layer_backward(const QnALayerFoldBackwardArgs<double>&, Runtime&);

}  // namespace qna::kernels
