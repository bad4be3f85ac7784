// The implementations of the kernels: a list with names, one of which is chosen.
//
// The choice is, in this order: what force_implementation() said, the environment variable
// QNA_KERNEL, the fastest the CPU supports.
#pragma once

#include <span>
#include <string_view>

#include "qna/kernels/adamw.h"
#include "qna/kernels/bilinear.h"
#include "qna/kernels/convolution.h"
#include "qna/kernels/dense.h"
#include "qna/kernels/depthwise.h"
#include "qna/kernels/instance_norm.h"
#include "qna/kernels/layer_norm.h"
#include "qna/kernels/mlp_branch.h"
#include "qna/kernels/multihead_attention.h"
#include "qna/kernels/pool.h"
#include "qna/kernels/product.h"
#include "qna/kernels/qna_layer.h"
#include "qna/kernels/sasa.h"
#include "qna/kernels/window_attention.h"
#include "qna/kernels/window_self_attention.h"
#include "qna/kernels/window_self_attention_branch.h"

namespace qna::kernels {

template <typename T>
struct KernelTable {
  void (*forward)(const WindowAttentionArgs<T>&, Runtime&);
  void (*backward)(const WindowAttentionBackwardArgs<T>&, Runtime&);
  void (*qna_layer)(const QnALayerArgs<T>&, Runtime&);
  PackedWeights (*pack_qna_layer)(const QnALayerArgs<T>&, Runtime&);
  void (*qna_layer_backward)(const QnALayerBackwardArgs<T>&, Runtime&);
  void (*sasa)(const SasaArgs<T>&, Runtime&);
  void (*sasa_backward)(const SasaBackwardArgs<T>&, Runtime&);
};

struct Implementation {
  const char* name;
  const char* description;
  bool supported;  // by this CPU
  int lanes;       // float32 values per vector
  KernelTable<float> float32;
  KernelTable<BFloat16> bfloat16;
  KernelTable<Float16> float16;
  // In float32 only.
  PackedWeights (*pack_matrix)(const MatrixArgs&, Runtime&);
  void (*dense)(const DenseArgs&, Runtime&);
  void (*mlp)(const MlpArgs&, Runtime&);
  void (*product)(const ProductArgs&, Runtime&);
  void (*window_self_attention)(const WindowSelfAttentionArgs<float>&, Runtime&);
  void (*window_self_attention_backward)(const WindowSelfAttentionBackwardArgs<float>&, Runtime&);
  void (*window_self_attention_branch)(const WindowSelfAttentionBranchArgs<float>&, Runtime&);
  void (*window_self_attention_branch_backward)(const WindowSelfAttentionBranchBackwardArgs<float>&,
                                                Runtime&);
  void (*mlp_branch)(const MlpBranchArgs<float>&, Runtime&);
  void (*mlp_branch_backward)(const MlpBranchBackwardArgs<float>&, Runtime&);
  double (*gradient_square_sum)(std::span<const AdamWParameter>, Runtime&);
  void (*adamw)(const AdamWArgs&, Runtime&);
  void (*convolution)(const ConvolutionArgs&, Runtime&);
  void (*depthwise)(const DepthwiseArgs&, Runtime&);
  void (*max_pool)(const PoolArgs&, Runtime&);
  void (*average_pool)(const PoolArgs&, Runtime&);
  void (*instance_norm)(const InstanceNormArgs&, Runtime&);
  void (*bilinear)(const BilinearArgs&, Runtime&);
  void (*multihead_attention)(const MultiheadAttentionArgs&, Runtime&);
  void (*layer_norm)(const LayerNormArgs&, Runtime&);
  void (*norm_mean)(const NormMeanArgs&, Runtime&);
};

// All that were compiled, the slowest first.
std::span<const Implementation> implementations();

// The one that runs. Throws qna::Error if QNA_KERNEL names none, or one this CPU lacks.
const Implementation& chosen_implementation();

// Makes `name` the chosen one for the whole process; an empty name takes that back.
// Throws qna::Error if there is none of that name or the CPU lacks it.
void force_implementation(std::string_view name);

// Name of the implementation whose kernel ran last in this process, "" before the first. Lets a
// test prove which code it tested.
std::string_view last_implementation();

}  // namespace qna::kernels
