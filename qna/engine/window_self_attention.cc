#include "qna/engine/window_self_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "qna/engine/table.h"
#include "qna/kernels/window_self_attention.h"

namespace qna::engine {
namespace {

struct Range {
  int64_t begin, size;
};

// What lies before the shift, if anything does, and what lies behind.
std::vector<Range> cut(int64_t size, int64_t shift) {
  if (shift == 0) return {{0, size}};
  return {{0, shift}, {shift, size - shift}};
}

// query minus key, heads last -> heads first, key minus query
void turn(float* out, const float* table, int64_t places, int64_t heads) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t p = 0; p < places; ++p) {
      out[h * places + p] = table[(places - 1 - p) * heads + h];
    }
}

}  // namespace

WindowSelfAttention::WindowSelfAttention(const Tensors& tensors,
                                         const config::WindowSelfAttentionOptions& options,
                                         const NormWeights& norm, const Floats& scale)
    : options_(config::complete(options)), norm_(norm.kernel()) {
  const int64_t features = options_.features;
  qkv_ = linear(tensors.in("qkv"), 3 * features, features, /*bias=*/false)
             .fold_norm(norm)
             .pack(tensors.weight_type());
  project_ = linear(tensors.in("proj"), features, features, /*bias=*/false)
                 .scale_rows(scale)
                 .pack(tensors.weight_type());
  table_ = tensors.get("relative_bias");
  bias_.resize(table_.size());
  turn(bias_.data(), table_.data(), static_cast<int64_t>(table_.size()) / options_.heads,
       options_.heads);
}

std::array<int64_t, 2> WindowSelfAttention::window_on(int64_t height, int64_t width) const {
  if (options_.global) return {height, width};
  return {std::min(options_.window[0], height), std::min(options_.window[1], width)};
}

const float* WindowSelfAttention::bias_for(std::array<int64_t, 2> window, Scope& scope) const {
  if (!options_.global || window == options_.window) return bias_.data();
  const auto places = [](std::array<int64_t, 2> w) {
    return std::array<int64_t, 2>{2 * w[0] - 1, 2 * w[1] - 1};
  };
  const std::array<int64_t, 2> size = places(window);
  const int64_t count = size[0] * size[1];
  float* resized = scope.floats(count * options_.heads);
  resize_bicubic(resized, table_.data(), places(options_.window), size, options_.heads);
  float* bias = scope.floats(count * options_.heads);
  turn(bias, resized, count, options_.heads);
  return bias;
}

void WindowSelfAttention::project_in(const Map& x, float* qkv, Worker& worker) const {
  dense(x.data, x.rows(), qkv_, qkv, worker, {.norm = norm_});
}

void WindowSelfAttention::attend(const Map& qkv, float* mixed, Mask mask, const float* bias,
                                 std::array<int64_t, 2> window, Worker& worker) const {
  const int64_t dim = options_.features / options_.heads;
  const std::array<int64_t, 2> table = options_.global ? window : options_.window;
  kernels::window_self_attention(
      {.batch = qkv.batch,
       .height = qkv.height,
       .width = qkv.width,
       .heads = options_.heads,
       .head_dim = dim,
       .window_h = std::min(window[0], qkv.height),
       .window_w = std::min(window[1], qkv.width),
       .qkv = qkv.data,
       .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
       .bias = bias,
       .bias_h = table[0],
       .bias_w = table[1],
       .mask = mask,
       .out = mixed},
      worker.runtime);
}

void WindowSelfAttention::mix(const Map& x, float* mixed, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  const Map qkv{x.batch, x.height, x.width, 3 * x.features,
                scope.floats(3 * x.rows() * x.features)};
  project_in(x, qkv.data, worker);
  const std::array<int64_t, 2> window = window_on(x.height, x.width);
  const float* bias = bias_for(window, scope);
  std::array<int64_t, 2> shift = options_.shift;
  if (x.height <= options_.window[0]) shift[0] = 0;
  if (x.width <= options_.window[1]) shift[1] = 0;
  if (shift == std::array<int64_t, 2>{0, 0}) {
    return attend(qkv, mixed, mask, bias, window, worker);
  }
  // The kernel's windows begin at the map's corner: those before the shift are maps of their own.
  for (const Range& rows : cut(x.height, shift[0])) {
    for (const Range& columns : cut(x.width, shift[1])) {
      Scope part_scope(worker.arena);
      const int64_t count = x.batch * rows.size * columns.size;
      const Map part{x.batch, rows.size, columns.size, qkv.features,
                     part_scope.floats(count * qkv.features)};
      float* part_mixed = part_scope.floats(count * x.features);
      uint8_t* part_mask = mask == nullptr ? nullptr : part_scope.bytes(count);
      const auto for_each_row = [&](const auto& copy) {
        for (int64_t b = 0; b < x.batch; ++b)
          for (int64_t y = 0; y < rows.size; ++y) {
            copy((b * rows.size + y) * columns.size,
                 (b * x.height + rows.begin + y) * x.width + columns.begin);
          }
      };
      for_each_row([&](int64_t to, int64_t from) {
        std::memcpy(part.data + to * qkv.features, qkv.data + from * qkv.features,
                    columns.size * qkv.features * sizeof(float));
        if (mask != nullptr) std::memcpy(part_mask + to, mask + from, columns.size);
      });
      attend(part, part_mixed, part_mask, bias, window, worker);
      for_each_row([&](int64_t from, int64_t to) {
        std::memcpy(mixed + to * x.features, part_mixed + from * x.features,
                    columns.size * x.features * sizeof(float));
      });
    }
  }
}

}  // namespace qna::engine
