// The operators' kernels for the CPU, with the arguments of their schemas in library.cc.
#pragma once

#include <array>
#include <string>
#include <tuple>

#include "tensor.h"

namespace qna::python {

// Gradients that were not wanted, and results that there are none of, are tensors of no element.
// Gradients of weights and tables are float32.
using Tensors2 = std::tuple<Tensor, Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;
using Tensors4 = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Tensors5 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Tensors6 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using Tensors7 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using Tensors8 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Tensor qna_layer(Tensor x, Tensor score_weight, Tensor value_weight, OptionalTensor value_bias,
                 Tensor out_weight, OptionalTensor out_bias, OptionalTensor bias,
                 OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                 Integers stride, Integers padding, Integers dilation, int64_t upsample);
// Also the map of values and scores for the gradients: float32 [B, H, W, heads * dim + L * heads].
Tensors2 qna_layer_saving(Tensor x, Tensor score_weight, Tensor value_weight,
                          OptionalTensor value_bias, Tensor out_weight, OptionalTensor out_bias,
                          OptionalTensor bias, OptionalTensor tap_weights, OptionalTensor mask,
                          Integers kernel_size, Integers stride, Integers padding,
                          Integers dilation, int64_t upsample);
// Of x, score_weight, value_weight, value_bias, out_weight, out_bias, bias and tap_weights.
Tensors8 qna_layer_backward(Tensor grad_y, Tensor x, Tensor saved, Tensor score_weight,
                            Tensor value_weight, Tensor out_weight, OptionalTensor bias,
                            OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                            Integers stride, Integers padding, Integers dilation, int64_t upsample,
                            bool wants_x, bool wants_value_bias, bool wants_out_bias);

Tensor qna_layer_branch(Tensor x, Tensor score_weight, Tensor value_weight,
                        OptionalTensor value_bias, Tensor out_weight, OptionalTensor out_bias,
                        OptionalTensor bias, OptionalTensor tap_weights, OptionalTensor mask,
                        Integers kernel_size, Integers stride, Integers padding, Integers dilation,
                        double epsilon, OptionalTensor drop_factor, bool residual);
Tensors2 qna_layer_branch_saving(Tensor x, Tensor score_weight, Tensor value_weight,
                                 OptionalTensor value_bias, Tensor out_weight,
                                 OptionalTensor out_bias, OptionalTensor bias,
                                 OptionalTensor tap_weights, OptionalTensor mask,
                                 Integers kernel_size, Integers stride, Integers padding,
                                 Integers dilation, double epsilon, OptionalTensor drop_factor,
                                 bool residual);
Tensors8 qna_layer_branch_backward(Tensor grad_y, Tensor x, Tensor saved, Tensor score_weight,
                                   Tensor value_weight, Tensor out_weight, OptionalTensor bias,
                                   OptionalTensor tap_weights, OptionalTensor mask,
                                   Integers kernel_size, Integers stride, Integers padding,
                                   Integers dilation, double epsilon, OptionalTensor drop_factor,
                                   bool residual, bool wants_x, bool wants_value_bias,
                                   bool wants_out_bias);

// score_weight and, with a norm, value_weight and value_bias. The key bias plays no part; autograd
// wants to see it.
Tensors3 fold_qna_layer(Tensor query, Tensor key_weight, OptionalTensor key_bias,
                        Tensor value_weight, OptionalTensor value_bias, OptionalTensor norm_scale,
                        OptionalTensor norm_shift, int64_t heads, bool normalize,
                        bool stop_gradient);
// Of query, key_weight, value_weight, norm_scale and norm_shift.
Tensors5 fold_qna_layer_backward(Tensor grad_score_weight, OptionalTensor grad_value_weight,
                                 OptionalTensor grad_value_bias, Tensor query, Tensor key_weight,
                                 Tensor value_weight, OptionalTensor norm_scale,
                                 OptionalTensor norm_shift, int64_t heads, bool normalize,
                                 bool stop_gradient);

Tensor mlp_branch(Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor weight1, Tensor bias1,
                  Tensor weight2, Tensor bias2, OptionalTensor drop_factor, std::string activation,
                  double epsilon);
// Also the hidden features before the activation.
Tensors2 mlp_branch_saving(Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor weight1,
                           Tensor bias1, Tensor weight2, Tensor bias2, OptionalTensor drop_factor,
                           std::string activation, double epsilon);
// Of x and the six parameters.
Tensors7 mlp_branch_backward(Tensor grad_y, Tensor h, Tensor x, Tensor norm_weight,
                             Tensor norm_bias, Tensor weight1, Tensor bias1, Tensor weight2,
                             Tensor bias2, OptionalTensor drop_factor, std::string activation,
                             double epsilon);

Tensor window_self_attention(Tensor qkv, int64_t heads, Integers window, OptionalTensor bias,
                             OptionalTensor mask);
// Of qkv and bias.
Tensors2 window_self_attention_backward(Tensor grad_out, Tensor qkv, Tensor out, int64_t heads,
                                        Integers window, OptionalTensor bias, OptionalTensor mask);

// The window on a map [B, H, W, C], cut to it. Fails unless it and the bias are as they must be.
std::array<int64_t, 2> check_attention_window(const Tensor& map, int64_t heads,
                                              const Integers& window, const OptionalTensor& bias,
                                              const char* caller);

Tensor window_self_attention_branch(Tensor x, Tensor norm_weight, Tensor norm_bias,
                                    Tensor qkv_weight, Tensor proj_weight, OptionalTensor bias,
                                    OptionalTensor mask, OptionalTensor drop_factor, int64_t heads,
                                    Integers window, double epsilon);
// Also what the gradients need, [4, B, H, W, features]: queries, keys and values of each pixel
// [B, H, W, 3 * features], then what attention made of them.
Tensors2 window_self_attention_branch_saving(Tensor x, Tensor norm_weight, Tensor norm_bias,
                                             Tensor qkv_weight, Tensor proj_weight,
                                             OptionalTensor bias, OptionalTensor mask,
                                             OptionalTensor drop_factor, int64_t heads,
                                             Integers window, double epsilon);
// Of x, the four parameters and bias.
Tensors6 window_self_attention_branch_backward(Tensor grad_y, Tensor saved, Tensor x,
                                               Tensor norm_weight, Tensor norm_bias,
                                               Tensor qkv_weight, Tensor proj_weight,
                                               OptionalTensor bias, OptionalTensor mask,
                                               OptionalTensor drop_factor, int64_t heads,
                                               Integers window, double epsilon);

Tensor window_attention(Tensor scores, Tensor values, OptionalTensor bias,
                        OptionalTensor tap_weights, OptionalTensor mask, Integers kernel_size,
                        Integers stride, Integers padding, Integers dilation, bool separate);
// Of scores, values, bias and tap_weights.
Tensors4 window_attention_backward(Tensor grad_out, Tensor scores, Tensor values,
                                   OptionalTensor bias, OptionalTensor tap_weights,
                                   OptionalTensor mask, Integers kernel_size, Integers stride,
                                   Integers padding, Integers dilation, bool separate);

Tensor sasa(Tensor q, Tensor k, Tensor v, OptionalTensor bias, OptionalTensor mask,
            Integers kernel_size, Integers stride, Integers padding, Integers dilation);
// Of q, k, v and bias.
Tensors4 sasa_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, OptionalTensor bias,
                       OptionalTensor mask, Integers kernel_size, Integers stride, Integers padding,
                       Integers dilation);

}  // namespace qna::python
