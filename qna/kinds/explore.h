// What the explorer of qna/report shows of a network and a picture.
#pragma once

#include <string>
#include <vector>

#include "qna/engine/model.h"
#include "qna/image/image.h"
#include "qna/report/explorer.h"

namespace qna::kinds {

struct ExploreOptions {
  std::vector<std::string> layers = {};  // as engine::find_attention_layer() knows them; empty: all
  double threshold = 0.5;                // of a detector's boxes; the surest where none has it
};

// Throws qna::Error for an auto-encoder.
void check_explorable(const engine::Model& model);

// seen: what the network is to see, at its size and with its channels. shown: the same on the page,
// with any number of pixels.
report::Explorer explore(const engine::Model& model, const std::string& name,
                         const image::Image& shown, const image::Image& seen,
                         const ExploreOptions& options, engine::Context& context);

}  // namespace qna::kinds
