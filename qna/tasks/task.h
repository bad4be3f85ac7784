// What a training run asks of its subject: a model, batches of data, a loss and metrics.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qna/predict/evaluate.h"
#include "qna/report/training_report.h"

namespace qna::tasks {

using predict::Metrics;
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// What a task has to know of the run around it.
struct Run {
  int64_t seed = 0;
  int64_t batch = 1;  // pictures per step, of all processes together
  int rank = 0;
  int ranks = 1;
  int threads = 1;  // that compute in this process
  // Adds a contiguous CPU tensor up over all processes, in place.
  std::function<void(torch::Tensor&)> sum = [](torch::Tensor&) {};
};

class Task {
 public:
  virtual ~Task() = default;

  virtual torch::nn::Module& model() = 0;
  // Lines about model and data for people.
  virtual std::vector<std::string> describe() const = 0;
  virtual int64_t train_size() const = 0;  // pictures
  virtual int64_t batches() const = 0;     // of an epoch
  virtual void start(int64_t epoch, int64_t first_batch) = 0;
  // Goes on to the next batch and returns how many pictures it has in all processes together.
  virtual int64_t next() = 0;
  // Of one of `parts` parts of this process's pictures: the sum of their losses divided by the
  // number of pictures in all parts and processes. Differentiable, whatever the part holds.
  virtual torch::Tensor loss(int64_t part, int64_t parts) = 0;

  // On the validation pictures, each exactly once over all processes. Everyone gets the same.
  using Tell = std::function<void(int64_t done, int64_t total)>;
  // Made with an engine of the model's current weights: what is measured is what users run.
  virtual Metrics evaluate(const Tell& tell) = 0;
  // Whether the first metric is better when larger.
  virtual bool larger_is_better() const { return true; }

  // A file that predicts: the model, with `extra` tensors beside it.
  virtual void save(const std::string& path, const nlohmann::json& training,
                    const NamedTensors& extra) = 0;
  // What could not be read so far; for logs.
  virtual std::vector<std::string> broken() const = 0;
  // Of the last evaluate(): pictures and charts.
  virtual void add_to_report(report::TrainingReport& report) = 0;
};

// A run as predict/ sees it; `run` must outlive the result.
predict::EvaluationRun evaluation_run(const Run& run, const Task::Tell& tell);

}  // namespace qna::tasks
