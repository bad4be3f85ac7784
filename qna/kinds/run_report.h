// What the report of a training run shows beside its curves: images and charts of the weights that
// were evaluated last. `model` serves those weights, `val` are the images it was evaluated on.
#pragma once

#include "qna/data/dataset.h"
#include "qna/data/detection_dataset.h"
#include "qna/engine/model.h"
#include "qna/predict/evaluate.h"
#include "qna/report/training_report.h"

namespace qna::kinds {

// A classifier: confusion, samples, attention.
void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const predict::Evaluation& last, const data::Dataset& val,
                   engine::Context& context);

// A detector: precision and recall, the worst images, where the decoder looks.
void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const predict::DetectorEvaluation& last, const data::DetectionDataset& val,
                   engine::Context& context);

// One picture with the layers that are worth a look first; nothing where there is one already, or
// where the network attends nowhere. See explore().
void add_explorer(report::TrainingReport& report, const engine::Model& model,
                  const std::string& name, const image::Image& shown, const image::Image& seen,
                  engine::Context& context);

// An auto-encoder: originals beside what became of them.
void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const data::Dataset& val, engine::Context& context);

}  // namespace qna::kinds
