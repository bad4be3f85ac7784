// What a model says of a data set. A loader must be one of evaluation; it is started here.
//
// The images may be divided among processes, each with its share in its loader: `sum` then adds
// the sums up over all of them, and everyone gets the same result.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qna/coco/evaluate.h"
#include "qna/data/detection_loader.h"
#include "qna/data/loader.h"
#include "qna/engine/model.h"
#include "qna/predict/image_metrics.h"

namespace qna::predict {

using Metrics = std::vector<std::pair<std::string, double>>;  // by name, the most important first

// Who looks on, and with whom the work is shared.
struct EvaluationRun {
  std::function<void(int64_t done, int64_t total)> tell = [](int64_t, int64_t) {};  // batches
  // Adds numbers up over all processes, in place. Each process calls it equally often.
  std::function<void(std::span<double>)> sum = [](std::span<double>) {};
};

// ---- classifiers ----

struct Evaluation {
  int64_t images = 0;              // that could be read
  double loss = 0;                 // mean cross entropy with the true labels
  double top1 = 0;                 // percent
  double top5 = 0;                 // percent; with fewer than 6 classes it says nothing
  std::vector<int64_t> confusion;  // [classes, classes]: true, predicted
  // Of this process's share: image, prediction and its probability.
  struct Prediction {
    int64_t image;
    int64_t label;
    int64_t predicted;
    double confidence;
  };
  std::vector<Prediction> predictions;
};

// The loader must have as many classes as the model.
Evaluation evaluate_classifier(const engine::Model& model, data::Loader& loader,
                               engine::Context& context, const EvaluationRun& run = {});

// ---- detectors ----

std::vector<int64_t> ids_of(const std::vector<coco::Category>& categories);

// {height, width} in whose pixels boxes are to be: the annotated size, or else the file's.
std::array<int64_t, 2> annotated_size(const coco::Image& image, std::array<int64_t, 2> of_file);

struct DetectorEvaluation {
  int64_t images = 0;  // that could be read
  std::vector<coco::Detection> detections;
  coco::Evaluation numbers;
};

// What a detector predicts for the images of a batch that could be read, in all decoder blocks.
struct DetectorOutput {
  const std::vector<int64_t>& slots;  // their places in the batch
  int64_t blocks, queries, classes;   // classes: without "no object"
  const float* logits;                // [blocks, slots, queries, classes + 1]
  const float* boxes;                 // [blocks, slots, queries, 4]
};
// For who measures a loss too.
using SeeOutput = std::function<void(const data::DetectionBatch&, const DetectorOutput&)>;

// category_ids: of the model's classes. The loader must be one of this data set. Images that
// cannot be read count as images in which nothing was found. Where there is a `see`, it gets the
// outputs of every batch with images, of all decoder blocks if the configuration says aux_loss,
// else of the last one.
DetectorEvaluation evaluate_detector(const engine::Model& model, data::DetectionLoader& loader,
                                     const data::DetectionDataset& dataset,
                                     const std::vector<int64_t>& category_ids,
                                     engine::Context& context, const EvaluationRun& run = {},
                                     const SeeOutput& see = nullptr);

// ---- auto-encoders ----

// Means over images, of numbers from 0 to 1.
struct Reconstruction {
  int64_t images = 0;
  double l1 = 0;
  double mse = 0;
  double psnr = 0;
  Ssim ssim = {};
  // By period: the grids that the network could leave in images of this size; see grid_energy.h.
  std::vector<std::pair<int64_t, double>> grids = {};
};

// All images have the size preprocess.crop.
Reconstruction evaluate_auto_encoder(const engine::Model& model, data::Loader& loader,
                                     const config::Preprocess& preprocess, engine::Context& context,
                                     const EvaluationRun& run = {});

// By name, as in the log of a run: L1, MSE, PSNR, SSIM, and grid2, grid4 ...
Metrics metrics_of(const Reconstruction& reconstruction);
// The factors of SSIM, for who wants to know where it comes from.
Metrics ssim_factors(const Reconstruction& reconstruction);

}  // namespace qna::predict
