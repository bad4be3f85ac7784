// `qna attend --explore`: one picture, one page.
#pragma once

#include <string>
#include <vector>

#include "cli/input_size.h"
#include "qna/kinds/explore.h"

namespace qna::cli {

// images: as on the command line, and must be one picture. out: the page's file.
void write_explorer(const engine::Model& model, const std::vector<std::string>& images,
                    const std::string& out, const InputSize& size,
                    const kinds::ExploreOptions& options, int threads);

}  // namespace qna::cli
