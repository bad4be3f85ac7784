#include "qna/kernels/implementation.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "qna/base/error.h"
#include "qna/kernels/layer_simd.h"
#include "qna/kernels/window_attention_simd.h"

namespace qna::kernels {
namespace {

template <typename T>
KernelTable<T> reference_table() {
  return {&window_attention_forward_reference<T>, &window_attention_backward_reference<T>,
          &layer_forward_reference<T>, &layer_backward_reference<T>};
}

std::vector<Implementation> make_list() {
  std::vector<Implementation> list;
  list.push_back({"reference", "plain loops in double precision", true, 1, reference_table<float>(),
                  reference_table<BFloat16>(), reference_table<Float16>(), &product_reference});
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
    const LayerKernels layer = layer_kernels(row.target);
    const LayerBackwardKernels back = layer_backward_kernels(row.target);
    if (window.lanes == 0) continue;  // not in this build
    const bool is_static = row.target == HWY_STATIC_TARGET;
    // What the compiler may use anyway goes by its own name if it has one.
    const auto same = [&](const Row& other) { return other.target == HWY_STATIC_TARGET; };
    if (&row == rows && std::any_of(rows + 1, std::end(rows), same)) continue;
    list.push_back(
        {row.name,
         row.description,
         is_static || (hwy::SupportedTargets() & row.target) != 0,
         window.lanes,
         {window.float32.forward, window.float32.backward, layer.float32, back.float32},
         {window.bfloat16.forward, window.bfloat16.backward, layer.bfloat16, back.bfloat16},
         {window.float16.forward, window.float16.backward, layer.float16, back.float16},
         layer.product});
  }
  return list;
}

const Implementation& find(std::string_view name, const char* where) {
  std::string names;
  for (const Implementation& implementation : implementations()) {
    if (name == implementation.name) {
      check(implementation.supported, "{}: this CPU does not support the kernel '{}'", where, name);
      return implementation;
    }
    if (!names.empty()) names += ", ";
    names += implementation.name;
  }
  fail("{}: kernel must be one of {}, got '{}'", where, names, name);
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

template <typename T>
const KernelTable<T>& chosen_table() {
  const Implementation& implementation = chosen_implementation();
  last = &implementation;
  return table_of<T>(implementation);
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
void window_attention_forward(const ForwardArgs<T>& args, Runtime& runtime) {
  chosen_table<T>().forward(args, runtime);
}
template <typename T>
void window_attention_backward(const BackwardArgs<T>& args, Runtime& runtime) {
  chosen_table<T>().backward(args, runtime);
}
template <typename T>
void layer_forward(const LayerArgs<T>& args, Runtime& runtime) {
  chosen_table<T>().layer(args, runtime);
}

template <typename T>
void layer_backward(const LayerBackwardArgs<T>& args, Runtime& runtime) {
  chosen_table<T>().layer_backward(args, runtime);
}

void product(const ProductArgs& args, Runtime& runtime) {
  const Implementation& implementation = chosen_implementation();
  last = &implementation;
  implementation.product(args, runtime);
}

// Only the reference computes in float64.
template <>
void window_attention_forward(const ForwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  window_attention_forward_reference(args, runtime);
}
template <>
void window_attention_backward(const BackwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  window_attention_backward_reference(args, runtime);
}
template <>
void layer_forward(const LayerArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  layer_forward_reference(args, runtime);
}

template <>
void layer_backward(const LayerBackwardArgs<double>& args, Runtime& runtime) {
  last = &implementations().front();
  layer_backward_reference(args, runtime);
}

#define QNA_INSTANTIATE(T)                                                      \
  template void window_attention_forward<T>(const ForwardArgs<T>&, Runtime&);   \
  template void window_attention_backward<T>(const BackwardArgs<T>&, Runtime&); \
  template void layer_forward<T>(const LayerArgs<T>&, Runtime&);                \
  template void layer_backward<T>(const LayerBackwardArgs<T>&, Runtime&);
QNA_INSTANTIATE(float)
QNA_INSTANTIATE(BFloat16)
QNA_INSTANTIATE(Float16)
#undef QNA_INSTANTIATE

}  // namespace qna::kernels
