// What a training run asks of its subject: a model, batches of data, a loss and metrics. What
// people look at is beside it: kinds/run_report.h.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qna/checkpoint/model_file.h"
#include "qna/predict/evaluate.h"

namespace qna::tasks {

using predict::Metrics;

// What a task has to know of the run around it.
struct Run {
  int64_t seed = 0;
  int64_t batch = 1;  // images per step, of all processes together
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
  // What is trained with the model and is of no use behind the run; null: nothing.
  virtual torch::nn::Module* companion() { return nullptr; }
  // How many stages lie between a parameter and the head: 0 in the head, 1 in the last stage of the
  // body. 0 everywhere: there is no body that could have learned before.
  virtual int64_t depth_of(const std::string& /*parameter*/) const { return 0; }
  // Lines about model and data for people.
  virtual std::vector<std::string> describe() const = 0;
  virtual int64_t train_size() const = 0;  // images
  virtual int64_t batches() const = 0;     // of an epoch
  virtual void start(int64_t epoch, int64_t first_batch) = 0;
  // Goes on to the next batch and returns how many images it has in all processes together.
  virtual int64_t next() = 0;
  // Of one of `parts` parts of this process's images: the sum of their losses divided by the
  // number of images in all parts and processes. Differentiable, whatever the part holds.
  virtual torch::Tensor loss(int64_t part, int64_t parts) = 0;

  // On the validation images, each exactly once over all processes. Everyone gets the same.
  using Tell = std::function<void(int64_t done, int64_t total)>;
  // Made with an engine of the model's current weights: what is measured is what users run.
  virtual Metrics evaluate(const Tell& tell) = 0;
  // Whether the first metric is better when larger.
  virtual bool larger_is_better() const { return true; }

  // The model's current weights, as a file and as a model that serves.
  void save(const std::string& path, const nlohmann::json& training,
            const checkpoint::NamedTensors& extra) const;
  engine::Model serving_model() const;

  // What could not be read so far; for logs.
  virtual std::vector<std::string> broken() const = 0;

 protected:
  // What the file of a run says of its data beside the recipe, entries of its training record.
  virtual nlohmann::json record() const { return nlohmann::json::object(); }
  virtual checkpoint::AnyModel any_model() const = 0;
  virtual checkpoint::ModelInfo info() const = 0;  // of a file
};

// A run as predict/ sees it; `run` must outlive the result.
predict::EvaluationRun evaluation_run(const Run& run, const Task::Tell& tell);

}  // namespace qna::tasks
