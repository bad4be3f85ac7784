#include "qna/kernels/qna_layer_fold.h"

#include "operators.h"
#include "qna/base/error.h"
#include "runtime.h"

namespace qna::python {
namespace {

// The tensors as contiguous arrays, held while a kernel runs.
struct FoldArrays {
  FoldArrays(const Tensor& query_in, const Tensor& key_weight_in, const Tensor& value_weight_in,
             const OptionalTensor& value_bias_in, const OptionalTensor& norm_scale_in,
             const OptionalTensor& norm_shift_in, int64_t heads, bool normalize, bool stop_gradient,
             const char* caller) {
    check(query_in.dim() == 2 && key_weight_in.dim() == 2,
          "{}: query and key_weight must have 2 dimensions, got {} and {}", caller, query_in.dim(),
          key_weight_in.dim());
    const int64_t queries = query_in.size(0), in = key_weight_in.size(0),
                  features = key_weight_in.size(1);
    check(heads >= 1 && features % heads == 0, "{}: heads must divide the features ({}), got {}",
          caller, features, heads);
    check(norm_scale_in.has_value() == norm_shift_in.has_value(),
          "{}: norm_scale and norm_shift must both be given or both be absent", caller);
    const auto array = [&](const OptionalTensor& tensor, std::initializer_list<int64_t> sizes,
                           const char* name) {
      check_sizes(tensor, sizes, name, caller);
      check_float32(tensor, name, caller);
      return as_table(tensor);
    };
    query = array(query_in, {queries, features}, "query");
    key_weight = array(key_weight_in, {in, features}, "key_weight");
    value_weight = array(value_weight_in, {in, features}, "value_weight");
    value_bias = array(value_bias_in, {features}, "value_bias");
    norm_scale = array(norm_scale_in, {in}, "norm_scale");
    norm_shift = array(norm_shift_in, {in}, "norm_shift");
    fold = {.in_features = in,
            .queries = queries,
            .heads = heads,
            .head_dim = features / heads,
            .normalize = normalize,
            .stop_gradient = stop_gradient,
            .query = table_pointer(query),
            .key_weight = table_pointer(key_weight),
            .value_weight = table_pointer(value_weight),
            .value_bias = table_pointer(value_bias),
            .norm_scale = table_pointer(norm_scale),
            .norm_shift = table_pointer(norm_shift)};
  }

  OptionalTensor query, key_weight, value_weight, value_bias, norm_scale, norm_shift;
  kernels::QnALayerFold<float> fold;
};

}  // namespace

Tensors3 fold_qna_layer(Tensor query, Tensor key_weight, OptionalTensor, Tensor value_weight,
                        OptionalTensor value_bias, OptionalTensor norm_scale,
                        OptionalTensor norm_shift, int64_t heads, bool normalize,
                        bool stop_gradient) {
  const FoldArrays arrays(query, key_weight, value_weight, value_bias, norm_scale, norm_shift,
                          heads, normalize, stop_gradient, "qna::fold_qna_layer");
  const auto& fold = arrays.fold;
  const bool norm = norm_scale.has_value();
  const Tensor score_weight = table({fold.in_features, fold.queries, heads});
  const Tensor folded_weight = table({fold.in_features, heads, fold.head_dim}, norm);
  const Tensor folded_bias = table({heads, fold.head_dim}, norm);
  TorchRuntime runtime;
  kernels::fold_qna_layer<float>({fold, pointer<float>(score_weight), wanted_pointer(folded_weight),
                                  wanted_pointer(folded_bias)},
                                 runtime);
  return {score_weight, folded_weight, folded_bias};
}

Tensors5 fold_qna_layer_backward(Tensor grad_score_weight, OptionalTensor grad_value_weight,
                                 OptionalTensor grad_value_bias, Tensor query, Tensor key_weight,
                                 Tensor value_weight, OptionalTensor norm_scale,
                                 OptionalTensor norm_shift, int64_t heads, bool normalize,
                                 bool stop_gradient) {
  const char* caller = "qna::fold_qna_layer_backward";
  const FoldArrays arrays(query, key_weight, value_weight, std::nullopt, norm_scale, norm_shift,
                          heads, normalize, stop_gradient, caller);
  const auto& fold = arrays.fold;
  const bool norm = norm_scale.has_value();
  check(grad_value_weight.has_value() == norm && grad_value_bias.has_value() == norm,
        "{}: gradients of value_weight and value_bias must be given with a norm, and only then",
        caller);
  check_sizes(grad_score_weight, {fold.in_features, fold.queries, heads}, "grad_score_weight",
              caller);
  check_sizes(grad_value_weight, {fold.in_features, heads, fold.head_dim}, "grad_value_weight",
              caller);
  check_sizes(grad_value_bias, {heads, fold.head_dim}, "grad_value_bias", caller);
  const OptionalTensor score = as_table(grad_score_weight), value = as_table(grad_value_weight),
                       shift = as_table(grad_value_bias);
  const Tensor grad_query = table(sizes_of(query)), grad_key_weight = table(sizes_of(key_weight)),
               grad_in_value_weight = table(sizes_of(value_weight), norm),
               grad_norm_scale = table({fold.in_features}, norm),
               grad_norm_shift = table({fold.in_features}, norm);
  TorchRuntime runtime;
  kernels::fold_qna_layer_backward<float>(
      {.in = fold,
       .grad_score_weight = table_pointer(score),
       .grad_value_weight = table_pointer(value),
       .grad_value_bias = table_pointer(shift),
       .grad_query = pointer<float>(grad_query),
       .grad_key_weight = pointer<float>(grad_key_weight),
       .grad_in_value_weight = wanted_pointer(grad_in_value_weight),
       .grad_norm_scale = wanted_pointer(grad_norm_scale),
       .grad_norm_shift = wanted_pointer(grad_norm_shift)},
      runtime);
  return {grad_query, grad_key_weight, grad_in_value_weight, grad_norm_scale, grad_norm_shift};
}

}  // namespace qna::python
