// What a teacher, some other network, said of views of images: soft targets for a student, read
// from files. qna.teacher of the Python package writes them; docs/teacher.md states the format.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "qna/data/augment.h"
#include "qna/data/dataset.h"
#include "qna/format/safetensors.h"

namespace qna::data {

class TeacherTargets {
 public:
  // Where the answers for one image lie, view by view.
  struct Place {
    size_t file;
    int64_t row;  // of the view, among all views of the file
  };

  // Safetensors files, or folders of them, all of one teacher. Throws qna::Error that names the
  // file and the rule it breaks.
  explicit TeacherTargets(const std::vector<std::string>& paths);
  // The same for a file at hand; `origin` stands for its path in messages.
  TeacherTargets(std::shared_ptr<const std::string> bytes, const std::string& origin);

  const std::vector<std::string>& classes() const { return classes_; }
  int64_t features() const { return features_; }  // numbers per view; 0: none

  // The views of the image of this name, which may have more folders before it than in the files;
  // none: no file has the image.
  const std::vector<Place>& places(std::string_view name) const;

  // The part of the image that the teacher saw. Throws where the image has another size than the
  // teacher's; `name` is for that message.
  View view(const Place& place, const image::Image& image, const std::string& name) const;
  // Probabilities of the classes: softmax(logits / temperature). Throws where a logit is not
  // finite.
  void probabilities(const Place& place, double temperature, float* out) const;
  void features(const Place& place, float* out) const;

 private:
  struct File {
    format::SafetensorsFile file;
    std::string path;
    int64_t views = 0;  // of one image
  };

  void add(format::SafetensorsFile opened, const std::string& path);
  void check_views(const File& file, int64_t images) const;
  void add_names(size_t file, int64_t images);

  std::vector<File> files_;
  std::vector<std::string> classes_;
  int64_t features_ = 0;
  std::unordered_map<std::string, std::vector<Place>> places_;
};

// The images of a data set that the teacher has seen.
std::shared_ptr<const Dataset> seen_by(const TeacherTargets& teacher,
                                       std::shared_ptr<const Dataset> dataset);

}  // namespace qna::data
