#include "qna/kernels/implementation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "qna/base/error.h"
#include "qna/kernels/adamw_simd.h"
#include "qna/kernels/dense_simd.h"
#include "qna/kernels/mlp_branch_simd.h"
#include "qna/kernels/network_simd.h"
#include "qna/kernels/qna_layer_simd.h"
#include "qna/kernels/sasa_simd.h"
#include "qna/kernels/window_attention_simd.h"
#include "qna/kernels/window_self_attention_branch_simd.h"

namespace qna::kernels {
namespace {

template <typename T>
KernelTable<T> reference_table() {
  return {&window_attention_forward_reference<T>,
          &window_attention_backward_reference<T>,
          &qna_layer_forward_reference<T>,
          &pack_qna_layer_reference<T>,
          &qna_layer_backward_reference<T>,
          &sasa_forward_reference<T>,
          &sasa_backward_reference<T>};
}

template <typename T>
KernelTable<T> make_table(const WindowKernelsOf<T>& window, const QnALayerKernelsOf<T>& layer,
                          void (*qna_layer_backward)(const QnALayerBackwardArgs<T>&, Runtime&),
                          void (*sasa)(const SasaArgs<T>&, Runtime&),
                          void (*sasa_backward)(const SasaBackwardArgs<T>&, Runtime&)) {
  return {window.forward, window.backward, layer.forward, layer.pack, qna_layer_backward,
          sasa,           sasa_backward};
}

std::vector<Implementation> make_list() {
  std::vector<Implementation> list;
  list.push_back({"reference",
                  "plain loops in double precision",
                  true,
                  1,
                  reference_table<float>(),
                  reference_table<BFloat16>(),
                  reference_table<Float16>(),
                  &pack_matrix_reference,
                  &dense_reference,
                  &mlp_reference,
                  &product_reference,
                  &window_self_attention_reference<float>,
                  &window_self_attention_backward_reference<float>,
                  &window_self_attention_branch_reference<float>,
                  &window_self_attention_branch_backward_reference<float>,
                  &mlp_branch_reference<float>,
                  &mlp_branch_backward_reference<float>,
                  &gradient_square_sum_reference,
                  &adamw_reference,
                  &convolution_reference,
                  &depthwise_reference,
                  &max_pool_reference,
                  &average_pool_reference,
                  &instance_norm_reference,
                  &bilinear_reference,
                  &multihead_attention_reference,
                  &layer_norm_reference,
                  &norm_mean_reference});
  struct Row {
    int64_t target;
    const char* name;
    const char* description;
  };
  const Row rows[] = {
      {HWY_STATIC_TARGET, "baseline", "the fused kernels without run-time dispatch"},
      {HWY_SSE4, "sse4", "fused, 4 lanes, SSE4.2"},
      {HWY_NEON, "neon", "fused, 4 lanes, NEON"},
      {HWY_AVX2, "avx2", "fused, 8 lanes, AVX2 and FMA"},
      {HWY_AVX3, "avx512", "fused, 16 lanes, AVX-512"},
  };
  for (const Row& row : rows) {
    const WindowKernels window = window_kernels(row.target);
    const QnALayerKernels layer = qna_layer_kernels(row.target);
    const DenseKernels dense = dense_kernels(row.target);
    const MlpBranchKernels mlp_branch = mlp_branch_kernels(row.target);
    const WindowSelfAttentionBranchKernels attention_branch =
        window_self_attention_branch_kernels(row.target);
    const AdamWKernels adamw = adamw_kernels(row.target);
    const QnALayerBackwardKernels back = qna_layer_backward_kernels(row.target);
    const SasaKernels sasa = sasa_kernels(row.target);
    const SasaBackwardKernels sasa_back = sasa_backward_kernels(row.target);
    const PoolKernels pool = pool_kernels(row.target);
    const LayerNormKernels norm = layer_norm_kernels(row.target);
    if (dense.lanes == 0) continue;  // not in this build
    // What the compiler may use anyway goes by its own name if it has one.
    const auto same = [&](const Row& other) { return other.target == HWY_STATIC_TARGET; };
    if (&row == rows && std::any_of(rows + 1, std::end(rows), same)) continue;
    list.push_back(
        {row.name,
         row.description,
         &row == rows || (hwy::SupportedTargets() & row.target) != 0,
         dense.lanes,
         make_table(window.float32, layer.float32, back.float32, sasa.float32, sasa_back.float32),
         make_table(window.bfloat16, layer.bfloat16, back.bfloat16, sasa.bfloat16,
                    sasa_back.bfloat16),
         make_table(window.float16, layer.float16, back.float16, sasa.float16, sasa_back.float16),
         dense.pack_matrix,
         dense.dense,
         dense.mlp,
         dense.product,
         window_self_attention_kernels(row.target).forward,
         window_self_attention_backward_kernel(row.target).backward,
         attention_branch.forward,
         attention_branch.backward,
         mlp_branch.forward,
         mlp_branch.backward,
         adamw.gradient_square_sum,
         adamw.adamw,
         convolution_kernel(row.target).convolution,
         depthwise_kernel(row.target).depthwise,
         pool.max,
         pool.average,
         instance_norm_kernel(row.target).instance_norm,
         bilinear_kernel(row.target).bilinear,
         multihead_attention_kernel(row.target).multihead_attention,
         norm.layer_norm,
         norm.norm_mean});
  }
  return list;
}

const Implementation& find(std::string_view name, const char* where) {
  std::vector<const char*> names;
  for (const Implementation& implementation : implementations()) {
    if (name == implementation.name) {
      check(implementation.supported, "{}: this CPU does not support the kernel '{}'", where, name);
      return implementation;
    }
    names.push_back(implementation.name);
  }
  fail("{}: kernel must be one of {}, got '{}'", where, fmt::join(names, ", "), name);
}

std::atomic<const Implementation*> forced{nullptr};
std::atomic<const Implementation*> last{nullptr};

const Implementation& fastest() {
  const Implementation* best = nullptr;
  for (const Implementation& implementation : implementations()) {
    if (implementation.supported) best = &implementation;
  }
  return *best;
}

template <typename T>
const KernelTable<T>& table_of(const Implementation& implementation) {
  if constexpr (std::is_same_v<T, float>) return implementation.float32;
  if constexpr (std::is_same_v<T, BFloat16>) return implementation.bfloat16;
  if constexpr (std::is_same_v<T, Float16>) return implementation.float16;
}

const Implementation& choose() {
  const Implementation& implementation = chosen_implementation();
  last = &implementation;
  return implementation;
}

template <typename T>
const KernelTable<T>& chosen_table() {
  return table_of<T>(choose());
}

// What trains, and what computes in 16 bits, may be left out of a build (QNA_TRAINING_KERNELS).
template <typename Kernel>
Kernel* present(Kernel* kernel) {
  check(kernel != nullptr,
        "kernels: this build only serves: it has neither gradients nor 16-bit arithmetic; build "
        "with -DQNA_TRAINING_KERNELS=ON");
  return kernel;
}

PackedWeights owned(PackedWeights packed) {
  packed.owner = &chosen_implementation();
  return packed;
}

}  // namespace

std::span<const Implementation> implementations() {
  static const std::vector<Implementation> list = make_list();
  return list;
}

const Implementation& chosen_implementation() {
  if (const Implementation* implementation = forced.load()) return *implementation;
  static const Implementation& by_default = [&]() -> const Implementation& {
    const char* name = std::getenv("QNA_KERNEL");
    return name == nullptr || *name == '\0' ? fastest() : find(name, "QNA_KERNEL");
  }();
  return by_default;
}

void force_implementation(std::string_view name) {
  forced = name.empty() ? nullptr : &find(name, "force_implementation");
}

std::string_view last_implementation() {
  const Implementation* implementation = last.load();
  return implementation == nullptr ? "" : implementation->name;
}

template <typename T>
void window_attention_forward(const WindowAttentionArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().forward)(args, runtime);
}
template <typename T>
void window_attention_backward(const WindowAttentionBackwardArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().backward)(args, runtime);
}
template <typename T>
void qna_layer_forward(const QnALayerArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().qna_layer)(args, runtime);
}

template <typename T>
PackedWeights pack_qna_layer(const QnALayerArgs<T>& args, Runtime& runtime) {
  return owned(present(chosen_table<T>().pack_qna_layer)(args, runtime));
}
template <typename T>
void qna_layer_backward(const QnALayerBackwardArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().qna_layer_backward)(args, runtime);
}
template <typename T>
void sasa_forward(const SasaArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().sasa)(args, runtime);
}
template <typename T>
void sasa_backward(const SasaBackwardArgs<T>& args, Runtime& runtime) {
  present(chosen_table<T>().sasa_backward)(args, runtime);
}

PackedWeights pack_matrix(const MatrixArgs& args, Runtime& runtime) {
  return owned(choose().pack_matrix(args, runtime));
}
void dense(const DenseArgs& args, Runtime& runtime) { choose().dense(args, runtime); }
void mlp(const MlpArgs& args, Runtime& runtime) { choose().mlp(args, runtime); }
void product(const ProductArgs& args, Runtime& runtime) { choose().product(args, runtime); }
void window_self_attention(const WindowSelfAttentionArgs<float>& args, Runtime& runtime) {
  choose().window_self_attention(args, runtime);
}
void window_self_attention_backward(const WindowSelfAttentionBackwardArgs<float>& args,
                                    Runtime& runtime) {
  present(choose().window_self_attention_backward)(args, runtime);
}
void window_self_attention_branch(const WindowSelfAttentionBranchArgs<float>& args,
                                  Runtime& runtime) {
  present(choose().window_self_attention_branch)(args, runtime);
}
void window_self_attention_branch_backward(const WindowSelfAttentionBranchBackwardArgs<float>& args,
                                           Runtime& runtime) {
  present(choose().window_self_attention_branch_backward)(args, runtime);
}
void mlp_branch(const MlpBranchArgs<float>& args, Runtime& runtime) {
  present(choose().mlp_branch)(args, runtime);
}
void mlp_branch_backward(const MlpBranchBackwardArgs<float>& args, Runtime& runtime) {
  present(choose().mlp_branch_backward)(args, runtime);
}

double gradient_square_sum(std::span<const AdamWParameter> parameters, Runtime& runtime) {
  return present(choose().gradient_square_sum)(parameters, runtime);
}
void adamw(const AdamWArgs& args, Runtime& runtime) { present(choose().adamw)(args, runtime); }

void convolution(const ConvolutionArgs& args, Runtime& runtime) {
  choose().convolution(args, runtime);
}
void depthwise(const DepthwiseArgs& args, Runtime& runtime) { choose().depthwise(args, runtime); }
void max_pool(const PoolArgs& args, Runtime& runtime) { choose().max_pool(args, runtime); }
void average_pool(const PoolArgs& args, Runtime& runtime) { choose().average_pool(args, runtime); }
void instance_norm(const InstanceNormArgs& args, Runtime& runtime) {
  choose().instance_norm(args, runtime);
}
void bilinear(const BilinearArgs& args, Runtime& runtime) { choose().bilinear(args, runtime); }
void multihead_attention(const MultiheadAttentionArgs& args, Runtime& runtime) {
  choose().multihead_attention(args, runtime);
}
void layer_norm(const LayerNormArgs& args, Runtime& runtime) { choose().layer_norm(args, runtime); }
void norm_mean(const NormMeanArgs& args, Runtime& runtime) { choose().norm_mean(args, runtime); }

// Only the reference computes in float64.
template <>
void window_attention_forward(const WindowAttentionArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  window_attention_forward_reference(args, runtime);
}
template <>
void window_attention_backward(const WindowAttentionBackwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  window_attention_backward_reference(args, runtime);
}
template <>
void qna_layer_forward(const QnALayerArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  qna_layer_forward_reference(args, runtime);
}

template <>
void qna_layer_backward(const QnALayerBackwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  qna_layer_backward_reference(args, runtime);
}
template <>
void sasa_forward(const SasaArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  sasa_forward_reference(args, runtime);
}
template <>
void sasa_backward(const SasaBackwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  sasa_backward_reference(args, runtime);
}

#define QNA_INSTANTIATE(T)                                                                     \
  template void window_attention_forward<T>(const WindowAttentionArgs<T>&, Runtime&);          \
  template void window_attention_backward<T>(const WindowAttentionBackwardArgs<T>&, Runtime&); \
  template void qna_layer_forward<T>(const QnALayerArgs<T>&, Runtime&);                        \
  template PackedWeights pack_qna_layer<T>(const QnALayerArgs<T>&, Runtime&);                  \
  template void qna_layer_backward<T>(const QnALayerBackwardArgs<T>&, Runtime&);               \
  template void sasa_forward<T>(const SasaArgs<T>&, Runtime&);                                 \
  template void sasa_backward<T>(const SasaBackwardArgs<T>&, Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
