#include "qna/engine/resnet.h"

#include "qna/kernels/pool.h"

namespace qna::engine {
namespace {

using kernels::Activation;

int64_t half(int64_t size) { return (size + 1) / 2; }

// norm(conv(x))
Convolution frozen(const Tensors& conv, const Tensors& norm, int64_t in, int64_t out,
                   int64_t kernel, int64_t stride, int64_t dilation, Activation activation) {
  Matrix matrix = window_matrix(conv.get("weight"), out, in, kernel, kernel);
  matrix.fold_batch_norm(norm);
  const int64_t padding = kernel / 2 * dilation;
  return {.shape = {.kernel_h = kernel,
                    .kernel_w = kernel,
                    .stride_h = stride,
                    .stride_w = stride,
                    .pad_top = padding,
                    .pad_left = padding,
                    .dilation_h = dilation,
                    .dilation_w = dilation},
          .weights = matrix.pack(conv.weight_type()),
          .activation = activation};
}

}  // namespace

ResNet::Block::Block(const Tensors& tensors, const config::ResNetBlockOptions& o) : options(o) {
  const auto layer = [&](const char* conv, const char* norm, int64_t in, int64_t out,
                         int64_t kernel, int64_t stride, int64_t dilation, Activation activation) {
    return frozen(tensors.in(conv), tensors.in(norm), in, out, kernel, stride, dilation,
                  activation);
  };
  // The last one's activation comes behind the sum, as convolutions here have it.
  const Activation relu = Activation::kRelu;
  if (o.basic) {
    convolutions.push_back(layer("conv1", "bn1", o.in_features, o.features, 3, o.stride, 1, relu));
    convolutions.push_back(layer("conv2", "bn2", o.features, o.features, 3, 1, 1, relu));
  } else {
    convolutions.push_back(layer("conv1", "bn1", o.in_features, o.inner(), 1, 1, 1, relu));
    convolutions.push_back(
        layer("conv2", "bn2", o.inner(), o.inner(), 3, o.stride, o.dilation, relu));
    convolutions.push_back(layer("conv3", "bn3", o.inner(), o.features, 1, 1, 1, relu));
  }
  if (o.reshapes()) {
    skip = layer("downsample.0", "downsample.1", o.in_features, o.features, 1, o.stride, 1,
                 Activation::kNone);
  }
}

Map ResNet::Block::out(const Map& x) const {
  const bool halves = options.stride == 2;
  return {x.batch, halves ? half(x.height) : x.height, halves ? half(x.width) : x.width,
          options.features};
}

void ResNet::Block::run(const Map& x, const Map& y, Mask before, Mask behind,
                        Worker& worker) const {
  Scope scope(worker.arena);
  const float* residual = x.data;
  if (skip) {  // the sum is taken in place
    skip->run(x, y, worker);
    residual = y.data;
  }
  const auto inner = [&](int64_t height, int64_t width) {
    return Map{x.batch, height, width, options.inner(),
               scope.floats(x.batch * height * width * options.inner())};
  };
  if (options.basic) {
    const Map a = inner(y.height, y.width);
    convolutions[0].run(x, a, worker);
    zero_masked(a, behind);
    convolutions[1].run(a, y, worker, residual);
    zero_masked(y, behind);  // the next block begins with a 3 x 3 convolution
    return;
  }
  const Map a = inner(x.height, x.width);
  convolutions[0].run(x, a, worker);
  zero_masked(a, before);
  const Map b = inner(y.height, y.width);
  convolutions[1].run(a, b, worker);
  convolutions[2].run(b, y, worker, residual);
}

ResNet::ResNet(const Tensors& tensors, const config::ResNetConfig& config)
    : config_(config),
      stem_(frozen(tensors.in("conv1"), tensors.in("bn1"), 3, 64, 7, 2, 1, Activation::kRelu)) {
  for (int index = 0; index < 4; ++index) {
    const Tensors stage = tensors.in("layer" + std::to_string(index + 1));
    auto& blocks = stages_.emplace_back();
    for (const config::ResNetBlockOptions& options : config::resnet_stage(config, index)) {
      blocks.emplace_back(stage.in(std::to_string(blocks.size())), options);
    }
  }
}

size_t ResNet::bytes() const {
  size_t sum = stem_.weights.bytes();
  for (const auto& stage : stages_)
    for (const Block& block : stage) {
      for (const Convolution& c : block.convolutions) sum += c.weights.bytes();
      if (block.skip) sum += block.skip->weights.bytes();
    }
  return sum;
}

Map ResNet::last_map(const ImageBatch& images) const {
  const int64_t stride = config_.stride();
  return {images.batch, (images.height + stride - 1) / stride, (images.width + stride - 1) / stride,
          config_.features()};
}

void ResNet::run_features(const ImageBatch& images, const Map& features, Worker& worker) const {
  Scope scope(worker.arena);
  const auto mask_at = [&](int64_t stride) {
    return every_nth(images.mask, images.batch, images.height, images.width, stride, scope);
  };
  Map x{images.batch, images.height, images.width, 3, const_cast<float*>(images.pixels)};
  if (images.mask != nullptr) {
    x.data = scope.floats(x.size());
    std::copy_n(images.pixels, x.size(), x.data);
    zero_masked(x, images.mask);
  }
  const auto map_of = [&](int64_t height, int64_t width, int64_t count) {
    return Map{x.batch, height, width, count};
  };
  Map stem = map_of(half(x.height), half(x.width), 64);
  Map map = map_of(half(stem.height), half(stem.width), 64);
  // The first stage's, but for images of a few pixels, whose maps hardly shrink any more.
  int64_t largest = map.size();
  Map behind_block = map;
  for (const auto& stage : stages_)
    for (const Block& block : stage) {
      behind_block = block.out(behind_block);
      largest = std::max(largest, behind_block.size());
    }
  float* pieces[2] = {scope.floats(largest), scope.floats(largest)};
  map.data = pieces[0];
  {
    Scope stem_scope(worker.arena);
    stem.data = stem_scope.floats(stem.size());
    stem_.run(x, stem, worker);
    zero_masked(stem, mask_at(2));
    // Behind ReLU zeros win no maximum, as the border does not; but the last pixels of an image may
    // win one outside of it.
    kernels::max_pool({.shape = {.batch = stem.batch,
                                 .height = stem.height,
                                 .width = stem.width,
                                 .in_features = 64,
                                 .kernel_h = 3,
                                 .kernel_w = 3,
                                 .stride_h = 2,
                                 .stride_w = 2,
                                 .pad_top = 1,
                                 .pad_left = 1,
                                 .out_height = map.height,
                                 .out_width = map.width},
                       .x = stem.data,
                       .y = map.data},
                      worker.runtime);
  }
  int64_t stride = 4;
  Mask mask = mask_at(stride);
  zero_masked(map, mask);
  int piece = 0;
  for (const auto& stage : stages_) {
    for (const Block& block : stage) {
      Mask behind = mask;
      if (block.options.stride == 2) behind = mask_at(stride *= 2);
      Map y = block.out(map);
      const bool last = &block == &stages_.back().back();
      y.data = last ? features.data : pieces[1 - piece];
      block.run(map, y, mask, behind, worker);
      map = y;
      mask = behind;
      piece = 1 - piece;
    }
  }
}

}  // namespace qna::engine
