// The sections of a recipe that belong to classification.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "qna/config/qna_vit.h"
#include "qna/data/augment.h"
#include "qna/data/mix.h"
#include "qna/data/open_dataset.h"
#include "qna/data/preprocess.h"
#include "qna/recipe/reading_options.h"

namespace qna::tasks {

// Another network's answers to learn from, and how much each part of the loss counts.
struct TeacherOptions {
  std::vector<std::string> targets;  // files or folders of files; none: no teacher
  double labels = 1;                 // cross entropy with the data's labels; 0: they are not used
  double logits = 1;                 // cross entropy with the teacher's probabilities
  double features = 0;     // 1 - cosine of both networks' features, through a learned projection
  double temperature = 1;  // that both networks' logits are divided by
};

struct ClassificationOptions {
  // [model]: a name of the registry, and what differs from it in [model.config]. Classes and
  // channels are those of the data, image_size that of [augment] unless it is given.
  std::string model = "qna_vit_tiny";
  nlohmann::json config = nlohmann::json::object();
  std::string weights;  // a file to start from; a head of other classes starts anew
  bool freeze_stem = false;  // it stays as it is in the file to start from

  // [data]
  data::DatasetOptions data;  // without the split
  // For people, in order of the classes; none: as the data has them.
  std::vector<std::string> class_names;
  std::string train = "train";  // names of the splits
  std::string val = "val";
  ReadingOptions reading;

  config::Preprocess preprocess;         // [preprocess]: of validation and prediction
  std::optional<data::Augment> augment;  // [augment]; none: as in validation
  data::Mix mix;                         // [mix]
  double label_smoothing = 0;            // [loss]
  TeacherOptions teacher;                // [teacher]
};

// sections: model, data, preprocess, augment, mix, loss, teacher. Throws qna::Error that begins
// with "recipe: " for unknown keys and wrong values.
ClassificationOptions classification_options(const nlohmann::json& sections);

// The names of the classes for people. Throws qna::Error where class_names are not as many.
std::vector<std::string> class_labels(const ClassificationOptions& options,
                                      const std::vector<std::string>& classes);

// The configuration of the network: the registry's with the changes.
config::QnAViTConfig model_config(const ClassificationOptions& options, int64_t classes);

}  // namespace qna::tasks
