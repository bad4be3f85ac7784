// The public interface of qna, as a list.
//
//   qna::nn::QnA             the layer, a torch module                      qna/nn/qna.h
//   qna::ops::layer          the same as one operator, x -> y               qna/ops/layer.h
//   qna::ops::window_attention  over given scores and values qna/ops/window_attention.h
//   qna::kernels::...        the torch-free kernels, by pointer             qna/kernels/*.h
//   qna::kernels::force_implementation, implementations qna/kernels/implementation.h qna::Error
//   what all of them throw for a wrong argument    qna/base/error.h
#pragma once

#include "qna/base/error.h"
#include "qna/kernels/implementation.h"
#include "qna/nn/qna.h"
#include "qna/ops/layer.h"
#include "qna/ops/registration.h"
#include "qna/ops/window_attention.h"
