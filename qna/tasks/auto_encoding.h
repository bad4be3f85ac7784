// Images through a narrow place and back: L1 loss, and how near the results are.
#pragma once

#include <memory>

#include "qna/data/loader.h"
#include "qna/recipe/auto_encoding_options.h"
#include "qna/tasks/loading.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

class AutoEncoding final : public Task {
 public:
  AutoEncoding(const nlohmann::json& sections, const Run& run);

  torch::nn::Module& model() override { return *model_; }
  std::vector<std::string> describe() const override;
  int64_t train_size() const override { return train_set_->size(); }
  int64_t batches() const override { return train_->batches(); }
  void start(int64_t epoch, int64_t first_batch) override { train_->start(epoch, first_batch); }
  int64_t next() override { return go_on(*train_, batch_); }
  torch::Tensor loss(int64_t part, int64_t parts) override;
  Metrics evaluate(const Tell& tell) override;
  bool larger_is_better() const override { return false; }  // the first metric is L1
  std::vector<std::string> broken() const override { return broken_in(*train_, *val_); }

  const data::Dataset& val_set() const { return *val_set_; }

 private:
  checkpoint::AnyModel any_model() const override { return model_; }
  checkpoint::ModelInfo info() const override { return {.preprocess = options_.preprocess}; }

  const Run run_;
  const AutoEncodingOptions options_;
  std::shared_ptr<const data::Dataset> train_set_;
  std::shared_ptr<const data::Dataset> val_set_;
  models::AutoEncoder model_{nullptr};
  std::unique_ptr<data::Loader> train_;
  std::unique_ptr<data::Loader> val_;
  data::Batch batch_;
};

}  // namespace qna::tasks
