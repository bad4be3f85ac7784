// Images without labels: all JPEG, PNG and WebP files below a folder, in order of their paths.
#pragma once

#include "qna/data/dataset.h"
#include "qna/data/image_name.h"

namespace qna::data {

// Every label is 0, of the only class "picture".
class ImageDataset final : public Dataset {
 public:
  // Throws qna::Error if there is no image. None is opened yet.
  explicit ImageDataset(const std::string& folder);

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  int64_t label(int64_t) const override { return 0; }
  std::string name(int64_t index) const override;
  image::Image read(int64_t index, int64_t channels) const override;
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string left_out() const override { return left_out_.line(); }

 private:
  LeftOut left_out_;
  std::vector<std::string> paths_;
  std::vector<std::string> classes_ = {"picture"};
};

// The last `count` images of a data set are for validation, the others for training.
struct HeldBack {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> val;
};
HeldBack hold_back(std::shared_ptr<const Dataset> whole, int64_t count);

}  // namespace qna::data
