#include "qna/engine/qna_vit.h"

#include <fmt/format.h>

#include <utility>

#include "qna/config/blocks.h"
#include "qna/engine/attention_maps.h"
#include "qna/kernels/layer_norm.h"

namespace qna::engine {
namespace {

int64_t up(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// What lies in front of a stride-2 convolution, as JAX's 'SAME' has it for even sizes: 2 before and
// 3 behind, one more behind odd ones.
constexpr int64_t kStemPadding = 2;

Convolution make_stem(const Tensors& tensors, const config::QnAViTConfig& c) {
  const bool patch = c.stem == config::StemKind::kPatch;
  const int64_t kernel = patch ? c.patch_size : 7;
  const int64_t stride = patch ? c.patch_size : 2;
  Matrix matrix =
      window_matrix(tensors.in("conv").get("weight"), c.base_dim, c.in_channels, kernel, kernel);
  Convolution stem{
      .shape = {.kernel_h = kernel, .kernel_w = kernel, .stride_h = stride, .stride_w = stride}};
  if (!patch) {
    stem.shape.pad_top = stem.shape.pad_left = kStemPadding;
    stem.activation = c.activation;
    matrix.fold_batch_norm(tensors.in("norm"));
  }
  stem.weights = matrix.pack(tensors.weight_type());
  return stem;
}

// Swin's down-sampling: 2 x 2 neighbours side by side, LayerNorm, a product.
Convolution make_merge(const Tensors& tensors, int64_t features) {
  const NormWeights norm(tensors.in("norm"), config::kBlockNormEpsilon);
  Matrix swin = linear(tensors.in("reduction"), 2 * features, 4 * features, false).fold_norm(norm);
  // Swin's order of the four is by column, then by row; that of windows by row, then by column.
  Matrix matrix = swin;
  for (int64_t o = 0; o < swin.out; ++o)
    for (int64_t y = 0; y < 2; ++y)
      for (int64_t x = 0; x < 2; ++x)
        for (int64_t c = 0; c < features; ++c) {
          matrix.weight[o * swin.in + (y * 2 + x) * features + c] =
              swin.weight[o * swin.in + (x * 2 + y) * features + c];
        }
  return {.shape = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2},
          .weights = matrix.pack(tensors.weight_type()),
          .norm = norm.kernel()};
}

std::string block_name(size_t stage, size_t block) {
  return fmt::format("stages.{}.blocks.{}", stage, block);
}
std::string downsample_name(size_t stage) { return fmt::format("stages.{}.downsample", stage); }

bool has_maps(const Block& block) {
  return block.qna() != nullptr ||
         (block.attention() != nullptr && !block.attention()->options().shifted());
}

}  // namespace

QnAViT::QnAViT(const Tensors& tensors, const config::QnAViTConfig& c) : config_(c) {
  if (c.stem == config::StemKind::kEfficientNet) {
    efficientnet_stem_.emplace(tensors.in("stem"), c);
  } else {
    stem_ = make_stem(tensors.in("stem"), c);
  }
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const Tensors of_stage = tensors.in("stages", i);
    const config::StageConfig& s = c.stages[i];
    Stage& stage = stages_.emplace_back();
    for (int64_t n = 0; n < s.attention_blocks + s.qna_blocks; ++n) {
      const int64_t local = n - s.attention_blocks;
      stage.blocks.push_back(std::make_unique<Block>(
          of_stage.in("blocks", n),
          local < 0 ? config::attention_block(c, i, 0) : config::local_block(c, i, local, 0)));
    }
    if (i + 1 == c.stages.size()) break;
    const Tensors down = of_stage.in("downsample");
    if (c.downsample == config::Downsample::kPatchMerging) {
      stage.merge = make_merge(down, c.features(i));
    } else if (c.downsample == config::Downsample::kConvPool) {
      stage.pool.emplace(down, config::ConvPoolOptions{.in_features = c.features(i)});
    } else {
      stage.downsample = std::make_unique<Block>(down, config::downsampling_block(c, i, 0));
    }
  }
  if (c.classes == 0) return;
  const Tensors head = tensors.in("head");
  head_norm_.emplace(head.in("norm"), config::kBlockNormEpsilon);
  if (c.head != config::HeadKind::kGap) {
    head_qna_.emplace(head.in("qna"), config::head_qna(c), &*head_norm_);
  }
  fc_ =
      linear(head.in("fc"), c.classes, c.features(c.stages.size() - 1)).pack(tensors.weight_type());
}

size_t QnAViT::bytes() const {
  size_t sum = (stem_ ? stem_->weights.bytes() : efficientnet_stem_->bytes()) + fc_.bytes();
  for (const Stage& stage : stages_) {
    for (const auto& block : stage.blocks) sum += block->bytes();
    if (stage.downsample) sum += stage.downsample->bytes();
    if (stage.merge) sum += stage.merge->weights.bytes();
    if (stage.pool) sum += stage.pool->bytes();
  }
  return sum;
}

Map QnAViT::last_map(const ImageBatch& images) const {
  const size_t last = stages_.size() - 1;
  const int64_t stride = config_.stride(last);
  return {images.batch, up(images.height, stride), up(images.width, stride),
          config_.features(last)};
}

void QnAViT::run_stem(const ImageBatch& images, const Map& y, Worker& worker) const {
  Scope scope(worker.arena);
  // The kernel reads it only.
  Map x{images.batch, images.height, images.width, config_.in_channels,
        const_cast<float*>(images.pixels)};
  if (images.mask != nullptr) {
    x.data = scope.floats(x.size());
    std::copy_n(images.pixels, x.size(), x.data);
    zero_masked(x, images.mask);
  }
  if (efficientnet_stem_) return efficientnet_stem_->run(x, y, images.mask, worker);
  if (config_.stem != config::StemKind::kResNet) {
    stem_->run(x, y, worker);
    if (config_.stem == config::StemKind::kPatch) return;  // 0 gives 0
    zero_masked(y,
                every_nth(images.mask, x.batch, x.height, x.width, config_.stem_stride(), scope));
    return;
  }
  const Map half{x.batch, up(x.height, 2), up(x.width, 2), y.features,
                 scope.floats(x.batch * up(x.height, 2) * up(x.width, 2) * y.features)};
  stem_->run(x, half, worker);
  max_pool_by_two(half, y, every_nth(images.mask, x.batch, x.height, x.width, 2, scope), worker);
}

void QnAViT::run_downsample(const Stage& stage, const Map& x, const Map& y, Mask mask,
                            Worker& worker) const {
  if (stage.downsample) return stage.downsample->run(x, y, mask, worker);
  zero_masked(x, mask);
  if (stage.merge) return stage.merge->run(x, y, worker);
  stage.pool->run(x, y, mask, worker);
}

AttentionLayer QnAViT::describe(std::string name, size_t stage, const Block& block) const {
  const bool learned = block.qna() != nullptr;
  return {.name = std::move(name),
          .stage = static_cast<int64_t>(stage),
          .learned_queries = learned,
          .heads = learned ? block.qna()->options().heads : block.attention()->options().heads,
          .stride = config_.stride(stage)};
}

std::vector<AttentionLayer> QnAViT::attention_layers() const {
  std::vector<AttentionLayer> layers;
  for (size_t i = 0; i < stages_.size(); ++i) {
    for (size_t n = 0; n < stages_[i].blocks.size(); ++n) {
      const Block& block = *stages_[i].blocks[n];
      if (has_maps(block)) layers.push_back(describe(block_name(i, n), i, block));
    }
    const auto& down = stages_[i].downsample;
    if (down && has_maps(*down)) layers.push_back(describe(downsample_name(i), i, *down));
  }
  if (head_qna_) {
    const size_t last = stages_.size() - 1;
    layers.push_back({.name = "head",
                      .stage = static_cast<int64_t>(last),
                      .heads = config::head_qna(config_).heads,
                      .stride = config_.stride(last)});
  }
  return layers;
}

// A pass: the map goes to and fro between two pieces of memory, and ends in a third.
struct QnAViT::Walk {
  Walk(const QnAViT& network, const ImageBatch& images, Worker& worker_in, Visitor* visitor_in)
      : worker(worker_in), visitor(visitor_in), scope(worker.arena) {
    const config::QnAViTConfig& c = network.config_;
    int64_t largest = 0;
    for (size_t i = 0; i < c.stages.size(); ++i) {
      largest = std::max(largest, images.batch * up(images.height, c.stride(i)) *
                                      up(images.width, c.stride(i)) * c.features(i));
    }
    pieces = {scope.floats(largest), scope.floats(largest)};
  }

  // A map of another size, in the piece that is free.
  Map next(int64_t height, int64_t width, int64_t features) const {
    return {map.batch, height, width, features, pieces[1 - piece]};
  }
  void go_to(const Map& y) {
    map = y;
    piece = 1 - piece;
  }
  void run(const Block& block, Mask mask) {
    const std::array<int64_t, 2>& stride = block.shape().stride;
    const Map y = next(up(map.height, stride[0]), up(map.width, stride[1]), block.shape().features);
    block.run(map, y, mask, worker);
    go_to(y);
  }
  void look(const AttentionLayer& layer, const Block& block) {
    if (visitor == nullptr || !has_maps(block) || !visitor->wants_attention(layer)) return;
    visitor->attention(attention_of(layer, block, map, *visitor, worker));
  }
  bool done() const { return visitor != nullptr && visitor->done(); }

  Worker& worker;
  Visitor* visitor;
  Scope scope;
  std::array<float*, 2> pieces;
  int piece = 0;
  Map map;
};

bool QnAViT::run_features(const ImageBatch& images, const Map& features, Worker& worker,
                          Visitor* visitor) const {
  Walk walk(*this, images, worker, visitor);
  const int64_t stride = config_.stride(0);
  walk.map = {images.batch, up(images.height, stride), up(images.width, stride), config_.base_dim,
              walk.pieces[0]};
  run_stem(images, walk.map, worker);
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    Scope mask_scope(worker.arena);
    const Mask mask = every_nth(images.mask, images.batch, images.height, images.width,
                                config_.stride(i), mask_scope);
    for (size_t n = 0; n < stage.blocks.size(); ++n) {
      if (walk.done()) return false;
      const Block& block = *stage.blocks[n];
      if (visitor != nullptr && has_maps(block)) {
        walk.look(describe(block_name(i, n), i, block), block);
      }
      walk.run(block, mask);
    }
    if (visitor != nullptr && visitor->wants_stage(static_cast<int64_t>(i))) {
      const Map& m = walk.map;
      visitor->stage(static_cast<int64_t>(i), {m.batch, m.height, m.width, m.features, m.data});
    }
    if (walk.done()) return false;
    if (i + 1 == stages_.size()) break;
    if (stage.downsample) {
      if (visitor != nullptr && has_maps(*stage.downsample)) {
        walk.look(describe(downsample_name(i), i, *stage.downsample), *stage.downsample);
      }
      walk.run(*stage.downsample, mask);
      continue;
    }
    const Map y = walk.next(up(walk.map.height, 2), up(walk.map.width, 2), 2 * walk.map.features);
    run_downsample(stage, walk.map, y, mask, worker);
    walk.go_to(y);
  }
  std::copy_n(walk.map.data, walk.map.size(), features.data);
  return true;
}

void QnAViT::pool(const Map& x, Mask mask, float* pooled, Worker& worker) const {
  const bool normed = head_norm_.has_value();
  const auto mean = [&](float* to) {
    kernels::norm_mean({.batch = x.batch,
                        .positions = x.positions(),
                        .features = x.features,
                        .epsilon = static_cast<float>(config::kBlockNormEpsilon),
                        .weight = normed ? head_norm_->weight.data() : nullptr,
                        .bias = normed ? head_norm_->bias.data() : nullptr,
                        .mask = mask,
                        .x = x.data,
                        .y = to,
                        .normalize = normed},
                       worker.runtime);
  };
  if (!head_qna_) return mean(pooled);
  head_qna_->run(x, {x.batch, 1, 1, x.features, pooled}, mask, worker);
  if (config_.head != config::HeadKind::kQnAv2) return;
  Scope scope(worker.arena);
  float* other = scope.floats(x.batch * x.features);
  mean(other);
  add(pooled, other, x.batch * x.features, x.batch * x.features, worker.runtime);
}

void QnAViT::run_head(const Map& x, Mask mask, float* logits, Worker& worker,
                      Visitor* visitor) const {
  if (visitor != nullptr && head_qna_) {
    const AttentionLayer layer = attention_layers().back();
    if (visitor->wants_attention(layer)) {
      visitor->attention(
          head_attention_of(layer, head_qna_->scores_for(x.height, x.width), x, *visitor, worker));
    }
    if (visitor->done()) return;
  }
  const bool shown = visitor != nullptr && visitor->wants_pooled();
  const bool wanted = logits != nullptr && fc_;
  if (!shown && !wanted) return;
  Scope scope(worker.arena);
  float* pooled = scope.floats(x.batch * x.features);
  pool(x, mask, pooled, worker);
  if (shown) visitor->pooled({x.batch, 1, 1, x.features, pooled});
  if (wanted) dense(pooled, x.batch, fc_, logits, worker);
}

void QnAViT::run(const ImageBatch& images, float* logits, Worker& worker, Visitor* visitor) const {
  Scope scope(worker.arena);
  Map features = last_map(images);
  features.data = scope.floats(features.size());
  if (!run_features(images, features, worker, visitor)) return;
  const Mask mask = every_nth(images.mask, images.batch, images.height, images.width,
                              config_.stride(stages_.size() - 1), scope);
  run_head(features, mask, logits, worker, visitor);
}

}  // namespace qna::engine
