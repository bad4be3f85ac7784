// Several runs on one page.
#pragma once

#include <string>
#include <vector>

#include "qna/viz/contact_sheet.h"

namespace qna::train {

// For every metric of the runs' logs one chart with a curve per run, and a table of where they
// ended. Runs are called by their folders' names. pictures: shown below, if there are any. The file
// is whole or absent. Throws qna::Error for a folder without a log.
void write_comparison(const std::string& path, const std::vector<std::string>& folders,
                      const std::vector<viz::Captioned>& pictures = {});

}  // namespace qna::train
