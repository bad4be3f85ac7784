#include "qna/engine/efficientnet_stem.h"

#include <algorithm>
#include <array>

namespace qna::engine {
namespace {

using kernels::Activation;

int64_t half(int64_t size) { return (size + 1) / 2; }

}  // namespace

EfficientNetStem::Block::Block(const Tensors& tensors, const config::InvertedResidualOptions& o)
    : options(o) {
  const kernels::WeightType type = tensors.weight_type();
  if (o.expands()) expand = linear(tensors.in("expand"), o.hidden, o.in_features).pack(type);
  depthwise = {.shape = {.kernel_h = o.kernel,
                         .kernel_w = o.kernel,
                         .stride_h = o.stride,
                         .stride_w = o.stride,
                         .pad_top = o.padding(),
                         .pad_left = o.padding()},
               .weight = taps_first(tensors.in("depthwise").get("weight"), o.hidden),
               .bias = tensors.in("depthwise").get("bias"),
               .activation = Activation::kRelu6};
  project = linear(tensors.in("project"), o.features, o.hidden).pack(type);
}

Map EfficientNetStem::Block::out(const Map& x) const {
  const bool halves = options.stride == 2;
  return {x.batch, halves ? half(x.height) : x.height, halves ? half(x.width) : x.width,
          options.features};
}

void EfficientNetStem::Block::run(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  Map wide = x;
  if (options.expands()) {
    wide.features = options.hidden;
    wide.data = scope.floats(wide.size());
    dense(x.data, x.rows(), expand, wide.data, worker, {.activation = Activation::kRelu6});
  }
  zero_masked(wide, mask);
  Map mixed = y;
  mixed.features = options.hidden;
  mixed.data = scope.floats(mixed.size());
  depthwise.run(wide, mixed, worker);
  dense(mixed.data, y.rows(), project, y.data, worker,
        {.residual = options.has_skip() ? x.data : nullptr});
}

EfficientNetStem::EfficientNetStem(const Tensors& tensors, const config::QnAViTConfig& config) {
  const Tensors first = tensors.in("conv");
  Matrix matrix =
      window_matrix(first.get("weight"), config::kEfficientNetFirst, config.in_channels, 3, 3);
  matrix.bias = first.get("bias");
  conv_ = {.shape = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2},
           .weights = matrix.pack(tensors.weight_type()),
           .activation = Activation::kRelu6};
  const auto blocks = config::efficientnet_blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks_.emplace_back(tensors.in("blocks", i), blocks[i]);
  }
  out_ = linear(tensors.in("out"), config.base_dim, config::kEfficientNetLast)
             .pack(tensors.weight_type());
}

void EfficientNetStem::run(const Map& x, const Map& y, Mask mask, Worker& worker) const {
  Scope scope(worker.arena);
  const auto mask_at = [&](int64_t stride) {
    return every_nth(mask, x.batch, x.height, x.width, stride, scope);
  };
  Map map{x.batch, half(x.height), half(x.width), config::kEfficientNetFirst};
  int64_t largest = map.size();
  for (Map next = map; const Block& block : blocks_) {
    next = block.out(next);
    largest = std::max(largest, next.size());
  }
  const std::array<float*, 2> pieces = {scope.floats(largest), scope.floats(largest)};
  map.data = pieces[0];
  conv_.run(x, map, worker);

  int64_t stride = 2;
  Mask here = mask_at(stride);
  for (const Block& block : blocks_) {
    Map next = block.out(map);
    next.data = map.data == pieces[0] ? pieces[1] : pieces[0];
    block.run(map, next, here, worker);
    map = next;
    if (block.options.stride == 1) continue;
    stride *= block.options.stride;
    here = mask_at(stride);
  }
  dense(map.data, map.rows(), out_, y.data, worker);
  zero_masked(y, here);
}

size_t EfficientNetStem::bytes() const {
  size_t sum = conv_.weights.bytes() + out_.bytes();
  for (const Block& block : blocks_) sum += block.bytes();
  return sum;
}

}  // namespace qna::engine
