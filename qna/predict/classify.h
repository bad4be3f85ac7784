// A classifier and images.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qna/engine/model.h"
#include "qna/image/image.h"

namespace qna::predict {

struct ClassProbability {
  int64_t label = 0;
  double probability = 0;
};

struct Classes {
  std::vector<float> probabilities;  // of every class; their sum is 1

  // The `count` most probable ones, the best first; of equal ones the lower class. Fewer where
  // there are fewer.
  std::vector<ClassProbability> top(int64_t count) const;
};

Classes softmax(std::span<const float> logits);

// Resizes, crops and normalises the image as the model's file says, runs the network. The image has
// as many channels as the model. Throws qna::Error where the model is none that knows classes.
Classes classify(const engine::Model& model, const image::Image& image, engine::Context& context);

// The same for a batch that is prepared already: one result per image.
std::vector<Classes> classify(const engine::Model& model, const engine::Images& images,
                              engine::Context& context);

// "church", or "class 4" where there are no labels.
std::string class_name(int64_t label, const std::vector<std::string>& labels);

// "church, 93 %": the most probable class. labels: may be empty.
std::string say(const Classes& classes, const std::vector<std::string>& labels);

// Throws qna::Error unless the model is a classifier with classes.
void check_has_classes(const engine::Model& model);

}  // namespace qna::predict
