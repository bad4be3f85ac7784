// Boxes and their classes: DETR's loss, COCO's numbers.
#pragma once

#include <memory>

#include "qna/data/detection_loader.h"
#include "qna/recipe/detection_options.h"
#include "qna/tasks/set_loss.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

class Detection final : public Task {
 public:
  Detection(const nlohmann::json& sections, const Run& run);

  torch::nn::Module& model() override { return *model_; }
  int64_t depth_of(const std::string& parameter) const override;
  std::vector<std::string> describe() const override;
  int64_t train_size() const override { return train_set_->size(); }
  int64_t batches() const override { return train_->batches(); }
  void start(int64_t epoch, int64_t first_batch) override;
  int64_t next() override;
  torch::Tensor loss(int64_t part, int64_t parts) override;
  Metrics evaluate(const Tell& tell) override;  // AP and its kin in percent, then the loss
  std::vector<std::string> broken() const override;

  const predict::DetectorEvaluation& last_evaluation() const { return last_; }
  const data::DetectionDataset& val_set() const { return *val_set_; }

 private:
  checkpoint::AnyModel any_model() const override { return model_; }
  checkpoint::ModelInfo info() const override;
  void load();
  void freeze();

  const Run run_;
  const DetectionTaskOptions options_;
  std::shared_ptr<const data::DetectionDataset> train_set_;
  std::shared_ptr<const data::DetectionDataset> val_set_;
  models::Detr model_{nullptr};
  std::vector<int64_t> category_ids_;
  std::vector<std::string> load_report_;
  std::unique_ptr<data::DetectionLoader> train_;
  std::unique_ptr<data::DetectionLoader> val_;
  data::DetectionBatch batch_;
  SetLossScale scale_;  // of the whole batch, over all processes
  predict::DetectorEvaluation last_;
};

}  // namespace qna::tasks
