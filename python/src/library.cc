// The operators' schemas and their kernels for the CPU, on torch's stable interface: one build
// serves torch 2.10 and later. Those the C++ library registers too have its schemas. Shapes for
// tracing, gradients and autocast are added in Python: qna/ops.py.
#include <torch/csrc/stable/library.h>

#include "operators.h"

#define QNA_WINDOWS "int[2] kernel_size, int[2] stride, int[4] padding, int[2] dilation"
#define QNA_LAYER                                                                               \
  "Tensor x, Tensor score_weight, Tensor value_weight, Tensor? value_bias, Tensor out_weight, " \
  "Tensor? out_bias, Tensor? bias, Tensor? tap_weights, Tensor? mask, " QNA_WINDOWS
#define QNA_LAYER_BACKWARD                                                                   \
  "Tensor grad_y, Tensor x, Tensor saved, Tensor score_weight, Tensor value_weight, Tensor " \
  "out_weight, "                                                                             \
  "Tensor? bias, Tensor? tap_weights, Tensor? mask, " QNA_WINDOWS
#define QNA_WANTED "bool wants_x, bool wants_value_bias, bool wants_out_bias"
#define QNA_BRANCH "float epsilon, Tensor? drop_factor, bool residual"
#define QNA_MLP                                                                                    \
  "Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor weight1, Tensor bias1, Tensor weight2, " \
  "Tensor bias2, Tensor? drop_factor, str activation, float epsilon"
#define QNA_ATTENTION_BRANCH                                                                \
  "Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor qkv_weight, Tensor proj_weight, " \
  "Tensor? bias, Tensor? mask, Tensor? drop_factor, int heads, int[2] window, float epsilon"
#define QNA_WINDOW_ATTENTION \
  "Tensor scores, Tensor values, Tensor? bias, Tensor? tap_weights, Tensor? mask, " QNA_WINDOWS
#define QNA_SASA "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, " QNA_WINDOWS
#define QNA_8_TENSORS "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"

STABLE_TORCH_LIBRARY(qna, library) {
  library.def("qna_layer(" QNA_LAYER ", int upsample) -> Tensor");
  library.def("qna_layer_saving(" QNA_LAYER ", int upsample) -> (Tensor, Tensor)");
  library.def("qna_layer_backward(" QNA_LAYER_BACKWARD ", int upsample, " QNA_WANTED
              ") -> " QNA_8_TENSORS);
  library.def("qna_layer_branch(" QNA_LAYER ", " QNA_BRANCH ") -> Tensor");
  library.def("qna_layer_branch_saving(" QNA_LAYER ", " QNA_BRANCH ") -> (Tensor, Tensor)");
  library.def("qna_layer_branch_backward(" QNA_LAYER_BACKWARD ", " QNA_BRANCH ", " QNA_WANTED
              ") -> " QNA_8_TENSORS);
  library.def(
      "fold_qna_layer(Tensor query, Tensor key_weight, Tensor? key_bias, Tensor value_weight, "
      "Tensor? value_bias, "
      "Tensor? norm_scale, Tensor? norm_shift, int heads, bool normalize, bool stop_gradient) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "fold_qna_layer_backward(Tensor grad_score_weight, Tensor? grad_value_weight, Tensor? "
      "grad_value_bias, "
      "Tensor query, Tensor key_weight, Tensor value_weight, Tensor? norm_scale, Tensor? "
      "norm_shift, int heads, "
      "bool normalize, bool stop_gradient) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("mlp_branch(" QNA_MLP ") -> Tensor");
  library.def("mlp_branch_saving(" QNA_MLP ") -> (Tensor, Tensor)");
  library.def("mlp_branch_backward(Tensor grad_y, Tensor h, " QNA_MLP
              ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "window_self_attention(Tensor qkv, int heads, int[2] window, Tensor? bias, Tensor? mask) -> "
      "Tensor");
  library.def(
      "window_self_attention_backward(Tensor grad_out, Tensor qkv, Tensor out, int heads, int[2] "
      "window, "
      "Tensor? bias, Tensor? mask) -> (Tensor, Tensor)");
  library.def("window_self_attention_branch(" QNA_ATTENTION_BRANCH ") -> Tensor");
  library.def("window_self_attention_branch_saving(" QNA_ATTENTION_BRANCH ") -> (Tensor, Tensor)");
  library.def(
      "window_self_attention_branch_backward(Tensor grad_y, Tensor saved, " QNA_ATTENTION_BRANCH
      ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def("window_attention(" QNA_WINDOW_ATTENTION ", bool separate) -> Tensor");
  library.def("window_attention_backward(Tensor grad_out, " QNA_WINDOW_ATTENTION
              ", bool separate) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def("sasa(" QNA_SASA ") -> Tensor");
  library.def("sasa_backward(Tensor grad_out, " QNA_SASA ") -> (Tensor, Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(qna, CPU, library) {
  using namespace qna::python;
  library.impl("qna_layer", TORCH_BOX(&qna_layer));
  library.impl("qna_layer_saving", TORCH_BOX(&qna_layer_saving));
  library.impl("qna_layer_backward", TORCH_BOX(&qna_layer_backward));
  library.impl("qna_layer_branch", TORCH_BOX(&qna_layer_branch));
  library.impl("qna_layer_branch_saving", TORCH_BOX(&qna_layer_branch_saving));
  library.impl("qna_layer_branch_backward", TORCH_BOX(&qna_layer_branch_backward));
  library.impl("fold_qna_layer", TORCH_BOX(&fold_qna_layer));
  library.impl("fold_qna_layer_backward", TORCH_BOX(&fold_qna_layer_backward));
  library.impl("mlp_branch", TORCH_BOX(&mlp_branch));
  library.impl("mlp_branch_saving", TORCH_BOX(&mlp_branch_saving));
  library.impl("mlp_branch_backward", TORCH_BOX(&mlp_branch_backward));
  library.impl("window_self_attention", TORCH_BOX(&window_self_attention));
  library.impl("window_self_attention_backward", TORCH_BOX(&window_self_attention_backward));
  library.impl("window_self_attention_branch", TORCH_BOX(&window_self_attention_branch));
  library.impl("window_self_attention_branch_saving",
               TORCH_BOX(&window_self_attention_branch_saving));
  library.impl("window_self_attention_branch_backward",
               TORCH_BOX(&window_self_attention_branch_backward));
  library.impl("window_attention", TORCH_BOX(&window_attention));
  library.impl("window_attention_backward", TORCH_BOX(&window_attention_backward));
  library.impl("sasa", TORCH_BOX(&sasa));
  library.impl("sasa_backward", TORCH_BOX(&sasa_backward));
}
