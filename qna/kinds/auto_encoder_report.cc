// What the report of a run shows of an auto-encoder.
#include <algorithm>
#include <filesystem>

#include "qna/base/error.h"
#include "qna/kinds/run_report.h"
#include "qna/predict/reconstruct.h"

namespace qna::kinds {

void add_to_report(report::TrainingReport& report, const engine::Model& model,
                   const data::Dataset& val, engine::Context& context) {
  constexpr int64_t kImages = 12;
  const config::Preprocess& preprocess = model.info().preprocess;
  report::Gallery gallery{.title = "Originals, and what became of them", .images = {}};
  const int64_t count = std::min(kImages, val.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * val.size() / count;
    try {
      const image::Image image = val.read(index, preprocess.channels());
      gallery.images.push_back(
          {predict::reconstruct(model, image, preprocess, context).side_by_side(),
           std::filesystem::path(val.name(index)).filename().string()});
    } catch (const Error&) {
      continue;  // it is in the list of broken ones
    }
  }
  report.galleries.push_back(std::move(gallery));
}

}  // namespace qna::kinds
