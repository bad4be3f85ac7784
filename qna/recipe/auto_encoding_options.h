// The sections of a recipe that belong to auto-encoding.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "qna/config/auto_encoder.h"
#include "qna/config/preprocess.h"
#include "qna/recipe/reading_options.h"

namespace qna::tasks {

struct AutoEncodingOptions {
  // [model]
  config::AutoEncoderConfig config;  // [model.config]
  std::string weights;               // a file to start from

  // [data]
  std::string path;          // a folder of images
  int64_t val_count = 1000;  // the last ones are for validation
  ReadingOptions reading;

  config::Preprocess preprocess;  // [preprocess]
};

// sections: model, data, preprocess. Throws qna::Error that begins with "recipe: ".
AutoEncodingOptions auto_encoding_options(const nlohmann::json& sections);

}  // namespace qna::tasks
