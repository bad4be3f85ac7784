// The layers that networks are made of, as plain options: what nn/ makes differentiable modules of
// and engine/ packs for serving.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "qna/kernels/dense.h"

namespace qna::config {

// Epsilons of the norms: Flax's LayerNorm in the paper's networks, PyTorch's everywhere else.
inline constexpr double kBlockNormEpsilon = 1e-6;
inline constexpr double kTorchNormEpsilon = 1e-5;

// How the attention maps of several queries are weighted before they are summed.
enum class AttentionScale {
  kPerTap,    // learned, per tap, query and head, from normal(0, 0.02): the paper's
  kPerQuery,  // learned, per query and head, from normal(0, 0.02)
  kOnes,      // learned, per tap, query and head, from 1
  kAverage,   // fixed 1 / queries
  kSigned,    // fixed +1 for the first half of (queries x heads), -1 for the other
  kNone,      // fixed 1
};

struct QnAOptions {
  int64_t in_features = 0;   // must be given
  int64_t features = 0;      // D, inside the layer; 0: as out_features
  int64_t out_features = 0;  // 0: as features, or as in_features if that is 0 too
  int64_t heads = 8;
  int64_t queries = 2;  // with upsample > 1 always upsample * upsample (2 and 0: not given)
  std::array<int64_t, 2> kernel_size = {3, 3};  // height, width
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> dilation = {1, 1};
  // top, bottom, left, right; nothing: half the window, so that stride 1 keeps the size. An even
  // window gets its extra row and column at the bottom and right.
  std::optional<std::array<int64_t, 4>> padding = std::nullopt;
  int64_t upsample = 1;  // s: the map grows s times, each window's s * s queries fill a block
  bool normalize_queries = true;
  bool normalize_stop_gradient = false;  // the queries' norm counts as a constant
  bool relative_bias = true;
  AttentionScale attention_scale = AttentionScale::kPerTap;  // with upsample > 1: kNone is used
  bool bias = false;                                         // biases of keys, values and output

  // Whether the scale has a parameter, and whether that is a table over the taps.
  bool has_scale() const;
  bool has_scale_per_tap() const;
};

enum class AttentionMethod {
  kFused,  // our kernels: ops/window_self_attention.h
  kSdpa,   // at::scaled_dot_product_attention
};

struct WindowSelfAttentionOptions {
  int64_t features = 0;  // must be given
  int64_t heads = 8;
  // Of the relative bias, and of attention unless it is global.
  std::array<int64_t, 2> window = {7, 7};
  // Attention over the whole map; the table, made for `window`, is resized to the map at hand.
  bool global = false;
  // Where the second window begins: the windows before it, at the top and left, are as narrow. That
  // is Swin's cyclic shift, with its mask between regions that are not neighbours. Along an axis on
  // which one window holds the whole map there is no shift.
  std::array<int64_t, 2> shift = {0, 0};
  AttentionMethod method = AttentionMethod::kFused;

  bool shifted() const { return shift != std::array<int64_t, 2>{0, 0}; }
};

enum class SasaMethod {
  kFused,   // our kernels: ops/sasa.h
  kUnfold,  // all windows of keys and values side by side in memory, as public code does it
};

struct SasaOptions {
  int64_t in_features = 0;   // must be given
  int64_t out_features = 0;  // inside the layer too; 0: as in_features
  int64_t heads = 8;
  std::array<int64_t, 2> kernel_size = {3, 3};  // height, width
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> dilation = {1, 1};
  // top, bottom, left, right; nothing: half the window, so that stride 1 keeps the size. At most
  // that, so that every window has a pixel in its middle.
  std::optional<std::array<int64_t, 4>> padding = std::nullopt;
  bool relative_bias = true;
  SasaMethod method = SasaMethod::kFused;
};

struct HaloAttentionOptions {
  int64_t in_features = 0;   // must be given
  int64_t out_features = 0;  // inside the layer too; 0: as in_features
  int64_t heads = 8;
  // The halo is half of it, so that a pixel sees at least what it would see in such a window.
  std::array<int64_t, 2> kernel_size = {3, 3};
  std::array<int64_t, 2> block = {8, 8};   // in pixels
  std::array<int64_t, 2> stride = {1, 1};  // from query to query; must divide block

  std::array<int64_t, 2> halo() const { return {kernel_size[0] / 2, kernel_size[1] / 2}; }
  // Differences between a key's place and a query's, along an axis.
  int64_t offsets(int axis) const { return 2 * block[axis] + 2 * halo()[axis] - stride[axis]; }
};

struct ConvolutionOptions {
  int64_t in_features = 0;   // must be given
  int64_t out_features = 0;  // 0: as in_features
  std::array<int64_t, 2> kernel_size = {3, 3};
  std::array<int64_t, 2> stride = {1, 1};
  bool depthwise = false;  // one kernel per feature, then a product that mixes the features
};

// NesT's down-sampling: 3 x 3 convolution, LayerNorm, 3 x 3 max-pooling with stride 2.
struct ConvPoolOptions {
  int64_t in_features = 0;   // must be given
  int64_t out_features = 0;  // 0: twice as many
};

using MixerOptions =
    std::variant<SasaOptions, HaloAttentionOptions, ConvolutionOptions, ConvPoolOptions>;

// A pre-norm block: a layer that mixes neighbours and an MLP, each with a skip connection.
struct BlockOptions {
  // Exactly one of the three.
  std::optional<QnAOptions> qna = std::nullopt;
  std::optional<WindowSelfAttentionOptions> attention = std::nullopt;
  std::optional<MixerOptions> mixer = std::nullopt;
  bool average_pool_skip = false;  // beside a stride: pool over the window before the skip
  double mlp_ratio = 4;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double layer_scale = 0;  // initial value of a learned scale behind each branch; 0: none
  // Stochastic depth in training. A block with stride drops only its MLP branch.
  double drop_path = 0;
};

// What follows from a block's options.
struct BlockShape {
  int64_t in_features;
  int64_t features;  // of the output
  int64_t hidden;    // of the MLP
  std::array<int64_t, 2> kernel_size;
  std::array<int64_t, 2> stride;
  bool strided() const { return stride != std::array<int64_t, 2>{1, 1}; }
};
// Throws qna::Error where the options do not fit together.
BlockShape block_shape(const BlockOptions& options);

// Where a position of a map lies: sines and cosines of the place relative to the image's size, or
// learned vectors per row and column.
enum class PositionKind { kSine, kLearned };
inline constexpr int64_t kLearnedPlaces = 50;  // rows and columns with a vector of their own

// The shortest wave lies `waves` times in the image, the longest is about `temperature` times as
// long. DETR's, the defaults, tell near places hardly apart.
struct SineOptions {
  double waves = 1;
  double temperature = 10000;
  bool centred = false;  // a position of the map lies in the middle of its pixels, not at their end

  bool operator==(const SineOptions&) const = default;
};

// DETR's transformer.
struct TransformerOptions {
  int64_t features = 256;
  int64_t heads = 8;
  int64_t encoder_blocks = 6;  // before any is replaced
  int64_t decoder_blocks = 6;
  int64_t feedforward = 2048;
  double dropout = 0.1;
  bool pre_norm = false;  // LayerNorm before each branch, or behind each sum

  // Encoder blocks qna_first to qna_first + qna_replaced are replaced by qna_blocks of these.
  int64_t qna_blocks = 0;
  int64_t qna_replaced = 0;
  int64_t qna_first = 0;
  BlockOptions qna_block = {};

  // The encoder's layers in their order: true is a QnA block.
  std::vector<bool> encoder_layers() const;
  // QnA blocks are pre-norm: behind the last one the sum has not been normalised yet.
  bool has_encoder_norm() const;
};

// The options with every default filled in. Throw qna::Error that names option, rule and value.
QnAOptions complete(QnAOptions options);
SasaOptions complete(SasaOptions options);
HaloAttentionOptions complete(HaloAttentionOptions options);
ConvolutionOptions complete(ConvolutionOptions options);
ConvPoolOptions complete(ConvPoolOptions options);
WindowSelfAttentionOptions complete(WindowSelfAttentionOptions options);
TransformerOptions complete(TransformerOptions options);

// top, bottom, left, right: half the window, so that stride 1 keeps the size. An even window gets
// its extra row and column at the bottom and right.
std::array<int64_t, 4> same_padding(std::array<int64_t, 2> kernel_size,
                                    std::array<int64_t, 2> dilation = {1, 1});

}  // namespace qna::config
