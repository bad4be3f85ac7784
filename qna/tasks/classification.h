// One label per image: cross entropy with soft targets, top-1 and top-5.
#pragma once

#include <memory>

#include "qna/data/loader.h"
#include "qna/recipe/classification_options.h"
#include "qna/tasks/task.h"

namespace qna::tasks {

class Classification final : public Task {
 public:
  Classification(const nlohmann::json& sections, const Run& run);

  torch::nn::Module& model() override { return *model_; }
  int64_t depth_of(const std::string& parameter) const override;
  std::vector<std::string> describe() const override;
  int64_t train_size() const override { return train_set_->size(); }
  int64_t batches() const override { return train_->batches(); }
  void start(int64_t epoch, int64_t first_batch) override;
  int64_t next() override;
  torch::Tensor loss(int64_t part, int64_t parts) override;
  Metrics evaluate(const Tell& tell) override;
  std::vector<std::string> broken() const override;

  const predict::Evaluation& last_evaluation() const { return last_; }
  const data::Dataset& val_set() const { return *val_set_; }
  torch::nn::Module* companion() override { return projection_ ? projection_.get() : nullptr; }

 private:
  void open_data();
  bool has_teacher() const { return teacher_ != nullptr; }
  const std::vector<std::string>& classes() const;
  torch::Tensor teacher_loss(const torch::Tensor& said, const torch::Tensor& pooled,
                             const torch::Tensor& logits);
  checkpoint::AnyModel any_model() const override { return model_; }
  checkpoint::ModelInfo info() const override;
  nlohmann::json record() const override;

  const Run run_;
  const ClassificationOptions options_;
  std::shared_ptr<const data::TeacherTargets> teacher_;  // null: none
  std::shared_ptr<const data::Dataset> train_set_;
  std::shared_ptr<const data::Dataset> val_set_;
  int64_t all_images_ = 0;  // to train, without a teacher
  std::vector<std::string> labels_;
  models::QnAViT model_{nullptr};
  torch::nn::Linear projection_{nullptr};  // onto the teacher's features
  std::vector<std::string> load_report_;
  std::unique_ptr<data::Loader> train_;
  std::unique_ptr<data::Loader> val_;
  data::Batch batch_;
  predict::Evaluation last_;
};

}  // namespace qna::tasks
