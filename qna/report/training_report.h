// What became of a training run, as one page: an HTML file that needs nothing else.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qna/image/image.h"
#include "qna/report/chart.h"
#include "qna/report/confusion.h"
#include "qna/report/explorer.h"
#include "qna/viz/contact_sheet.h"

namespace qna::report {

// An image and what the model says of it.
struct Sample {
  image::Image image;
  std::string truth;
  std::string predicted;
  double confidence = 0;  // of the predicted class, 0 to 1; NaN is not shown
  bool right = false;
  std::string name = {};  // of its file; empty: not shown
};

// Images under a heading.
struct Gallery {
  std::string title;
  std::vector<viz::Captioned> images;
};

// All text is plain text. A part that is empty has no place on the page.
struct TrainingReport {
  std::string title = {};
  std::vector<std::pair<std::string, std::string>> summary = {};  // large, at the top: label, value
  std::vector<Chart> charts = {};
  Confusion confusion = {};
  std::vector<Sample> samples = {};
  std::vector<viz::Captioned> attention = {};
  std::optional<Explorer> explorer = {};  // one picture to look around in
  std::vector<Gallery> galleries = {};
  std::string recipe = {};  // TOML
  std::vector<std::pair<std::string, std::string>> machine = {};
  std::vector<std::string> notes = {};
};

// The same report gives the same bytes. Samples are shrunk to 224 pixels and all other images to
// 1024 at their longer side.
std::string to_html(const TrainingReport& report);

// The file is whole or absent.
void write_report(const std::string& path, const TrainingReport& report);

}  // namespace qna::report
