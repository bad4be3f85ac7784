// The public interface of qna, as a list of includes.
// clang-format off
//
//   qna::train::train              a run by a recipe                            qna/train/, qna/tasks/
//   qna::models::QnAViT            the networks, and their list                 qna/models/
//   qna::models::Detr              DETR and DETR-QnA, and their list            qna/models/
//   qna::models::AutoEncoder       down with QnA or convolutions, and up again  qna/models/
//   qna::tasks::set_loss           DETR's loss                                  qna/tasks/
//   qna::engine::Model             a weights file that serves, without LibTorch qna/engine/
//   qna::predict::classify,        images to answers  , on the engine           qna/predict/
//     find_objects, features, reconstruct
//   qna::kinds::all_kinds          what can be done with each kind of network  qna/kinds/
//   qna::checkpoint::load_model,   weights of every kind from and to files      qna/checkpoint/
//     save_model, load_weights, serving_model
//   qna::nn::QnA                   the layer, a torch module                    qna/nn/qna_layer.h
//   qna::nn::Sasa, HaloAttention,  its rivals, torch modules too                qna/nn/sasa.h, ...
//     WindowSelfAttention, Convolution
//   qna::nn::Block                 a block of a network                         qna/nn/block.h
//   qna::ops::qna_layer            the layer as one operator, x -> y            qna/ops/qna_layer.h
//   qna::ops::window_attention     over given scores and values                 qna/ops/window_attention.h
//   qna::ops::sasa                 over queries, keys and values per pixel      qna/ops/sasa.h
//   qna::image, qna::data          images to a model's input                    qna/image/, qna/data/
//   qna::coco::evaluate            boxes, and how well a detector finds them    qna/coco/
//   qna::kernels                   the torch-free kernels, by pointer           qna/kernels/*.h
//   qna::kernels::implementations  their list; force_implementation chooses     qna/kernels/implementation.h
//   qna::Error                     what all of them throw for a wrong argument  qna/base/error.h
//
// clang-format on
#pragma once

#include "qna/base/error.h"
#include "qna/checkpoint/model_file.h"
#include "qna/coco/annotations.h"
#include "qna/coco/evaluate.h"
#include "qna/coco/results.h"
#include "qna/coco/summary.h"
#include "qna/coco/voc.h"
#include "qna/config/ablations.h"
#include "qna/config/cost.h"
#include "qna/config/detectors.h"
#include "qna/config/detr_cost.h"
#include "qna/config/network.h"
#include "qna/config/registry.h"
#include "qna/data/augment.h"
#include "qna/data/detection_loader.h"
#include "qna/data/loader.h"
#include "qna/data/mix.h"
#include "qna/data/open_dataset.h"
#include "qna/data/preprocess.h"
#include "qna/engine/import_flax.h"
#include "qna/engine/model.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/kernels/implementation.h"
#include "qna/kinds/kind.h"
#include "qna/models/auto_encoder.h"
#include "qna/models/detr.h"
#include "qna/models/qna_vit.h"
#include "qna/nn/block.h"
#include "qna/nn/convolution.h"
#include "qna/nn/halo_attention.h"
#include "qna/nn/qna_layer.h"
#include "qna/nn/sasa.h"
#include "qna/nn/window_self_attention.h"
#include "qna/ops/qna_layer.h"
#include "qna/ops/registration.h"
#include "qna/ops/sasa.h"
#include "qna/ops/window_attention.h"
#include "qna/predict/classify.h"
#include "qna/predict/detect.h"
#include "qna/predict/features.h"
#include "qna/predict/reconstruct.h"
#include "qna/recipe/recipe.h"
#include "qna/report/training_report.h"
#include "qna/tasks/classification.h"
#include "qna/tasks/set_loss.h"
#include "qna/train/trainer.h"
