// Fused kernel or composite form: the one place that decides it.
//
// There are two classes of operators:
//   maps      qna_layer, window_attention and sasa: one layer, in any precision. Registered with
//             torch's dispatcher, so they can be called by name, traced and autocast.
//   branches  qna_layer_branch, window_self_attention_branch and mlp_branch: a layer with all that
//             stands around it in a block (norm, stochastic depth, residual); and
//             window_self_attention, which windows that are shifted or go image by image are made
//             of. They are functions of C++ alone: under autocast, in other dtypes and on other
//             devices a branch is made of operators that the dispatcher knows, which is also what a
//             tracer should see.
#pragma once

#include <initializer_list>

#include "qna/ops/geometry.h"

namespace qna::ops {

enum class OperatorClass {
  kMap,     // fused for float32, bfloat16 and float16 on the CPU; autocast has a key of its own
  kBranch,  // fused for float32 on the CPU, outside autocast
};

// By the tensors that set the arithmetic's type; absent ones are passed by.
bool is_fused(OperatorClass operator_class, std::initializer_list<OptionalTensor> tensors);

}  // namespace qna::ops
