#include "qna/coco/results.h"

#include <cmath>
#include <iterator>

#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/coco/json_records.h"

namespace qna::coco {
namespace {

bool is_finite(const Detection& detection) {
  const Box& box = detection.box;
  for (const double number : {box.x, box.y, box.width, box.height, detection.score}) {
    if (!std::isfinite(number)) return false;
  }
  return true;
}

}  // namespace

std::vector<Detection> parse_results(std::string_view text, const std::string& origin,
                                     const Annotations& truth) {
  enum { kImage, kCategory, kBox, kScore };
  std::vector<Detection> detections;
  parse_record_list(text, origin,
                    {.key = "results",
                     .fields = {"image_id", "category_id", "bbox", "score"},
                     .take = [&](const Record& record) {
                       const Detection detection{.image_id = record.integer(kImage),
                                                 .category_id = record.integer(kCategory),
                                                 .box = record.box(kBox),
                                                 .score = record.number(kScore)};
                       if (!truth.find_image(detection.image_id).has_value()) {
                         record.reject("image_id must be of a picture of the ground truth, got {}",
                                       detection.image_id);
                       }
                       detections.push_back(detection);
                     }});
  return detections;
}

std::vector<Detection> read_results(const std::string& path, const Annotations& truth) {
  const auto file = format::MappedFile::open(path);
  return parse_results(text_of(*file), path, truth);
}

void write_results(const std::string& path, std::span<const Detection> detections) {
  constexpr size_t kChunk = 1 << 20;  // written piece by piece: a run has millions of detections
  AtomicFile file(path);
  std::string text = "[";
  for (size_t i = 0; i < detections.size(); ++i) {
    const Detection& detection = detections[i];
    check(is_finite(detection), "{}: detection {} must hold finite numbers, got {}, score {}", path,
          i, to_text(detection.box), detection.score);
    fmt::format_to(std::back_inserter(text),
                   R"({}{{"image_id":{},"category_id":{},"bbox":[{},{},{},{}],"score":{}}})",
                   i == 0 ? "" : ",\n", detection.image_id, detection.category_id, detection.box.x,
                   detection.box.y, detection.box.width, detection.box.height, detection.score);
    if (text.size() < kChunk) continue;
    file.write(text);
    text.clear();
  }
  file.write(text + "]\n");
  file.commit();
}

}  // namespace qna::coco
