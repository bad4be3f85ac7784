#include <algorithm>

#include "qna/base/error.h"
#include "qna/predict/detections.h"
#include "qna/predict/evaluate.h"

namespace qna::predict {
namespace {

// What every image gave, over all processes, each of which fills in its own images.
class Findings {
 public:
  Findings(int64_t images, int64_t queries)
      : queries_(queries), numbers_(images * queries * kNumbers), seen_(images) {}

  void put(int64_t index, const Detections& found) {
    double* to = numbers_.data() + index * queries_ * kNumbers;
    for (const Detection& each : found) {
      *to++ = each.score;
      *to++ = static_cast<double>(each.label);
      to = std::copy(each.box.begin(), each.box.end(), to);
    }
    seen_[index] = 1;
  }

  // Adds up over the processes; then the detections of all images that were seen.
  std::vector<coco::Detection> gather(const EvaluationRun& run,
                                      const std::vector<coco::Image>& images,
                                      const std::vector<int64_t>& category_ids) {
    run.sum(numbers_);
    run.sum(seen_);
    std::vector<coco::Detection> all;
    const double* row = numbers_.data();
    for (size_t i = 0; i < seen_.size(); ++i)
      for (int64_t query = 0; query < queries_; ++query, row += kNumbers) {
        if (seen_[i] == 0) continue;
        all.push_back({.image_id = images[i].id,
                       .category_id = category_ids[static_cast<int64_t>(row[1])],
                       .box = {row[2], row[3], row[4] - row[2], row[5] - row[3]},
                       .score = row[0]});
      }
    return all;
  }

  int64_t seen() const {
    return std::count_if(seen_.begin(), seen_.end(), [](double n) { return n > 0; });
  }

 private:
  static constexpr int64_t kNumbers = 6;  // score, class, corners
  const int64_t queries_;
  std::vector<double> numbers_;  // [images, queries, kNumbers]
  std::vector<double> seen_;     // [images]
};

// The images of a batch that could be read.
class Readable {
 public:
  explicit Readable(const data::DetectionBatch& batch) : batch_(batch) {
    for (int64_t i = 0; i < batch.count; ++i) {
      if (batch.sizes[i][0] > 0) slots_.push_back(i);
    }
    if (static_cast<int64_t>(slots_.size()) == batch.count) return;
    const int64_t area = batch.height * batch.width;
    for (const int64_t slot : slots_) {
      const float* const from = batch.pixels.data() + slot * area * 3;
      pixels_.insert(pixels_.end(), from, from + area * 3);
      const uint8_t* const inside = batch.mask.data() + slot * area;
      mask_.insert(mask_.end(), inside, inside + area);
    }
  }

  const std::vector<int64_t>& slots() const { return slots_; }

  // Without a mask where all images are as large as the batch.
  engine::Images images() const {
    const std::array<int64_t, 2> whole = {batch_.height, batch_.width};
    const bool equal = std::all_of(slots_.begin(), slots_.end(),
                                   [&](int64_t slot) { return batch_.sizes[slot] == whole; });
    const bool all = static_cast<int64_t>(slots_.size()) == batch_.count;
    return {.batch = static_cast<int64_t>(slots_.size()),
            .height = batch_.height,
            .width = batch_.width,
            .pixels = all ? batch_.pixels.data() : pixels_.data(),
            .mask = equal ? nullptr
                    : all ? batch_.mask.data()
                          : mask_.data()};
  }

 private:
  const data::DetectionBatch& batch_;
  std::vector<int64_t> slots_;
  std::vector<float> pixels_;  // where some could not be read
  std::vector<uint8_t> mask_;
};

}  // namespace

std::vector<int64_t> ids_of(const std::vector<coco::Category>& categories) {
  std::vector<int64_t> ids;
  for (const coco::Category& category : categories) ids.push_back(category.id);
  return ids;
}

std::array<int64_t, 2> annotated_size(const coco::Image& image, std::array<int64_t, 2> of_file) {
  if (image.height > 0 && image.width > 0) return {image.height, image.width};
  return of_file;
}

DetectorEvaluation evaluate_detector(const engine::Model& model, data::DetectionLoader& loader,
                                     const data::DetectionDataset& dataset,
                                     const std::vector<int64_t>& category_ids,
                                     engine::Context& context, const EvaluationRun& run,
                                     const SeeOutput& see) {
  const config::DetrConfig& config = model.detector();
  check(static_cast<int64_t>(category_ids.size()) == config.classes,
        "evaluation: there must be an id for each of the {} classes, got {}", config.classes,
        category_ids.size());
  const bool every_block = see && config.aux_loss;
  const int64_t blocks = every_block ? config.decoder_blocks : 1;
  Findings findings(dataset.size(), config.queries);
  std::vector<float> logits, boxes;
  loader.start(0);
  int64_t done = 0;
  while (std::optional<data::DetectionBatch> batch = loader.next()) {
    const Readable readable(*batch);
    if (!readable.slots().empty()) {
      const auto count = static_cast<int64_t>(readable.slots().size());
      const int64_t rows = count * config.queries;  // of one block
      logits.resize(blocks * rows * (config.classes + 1));
      boxes.resize(blocks * rows * 4);
      model.detect(readable.images(),
                   {.logits = logits.data(), .boxes = boxes.data(), .every_block = every_block},
                   context);
      if (see) {
        see(*batch, {.slots = readable.slots(),
                     .blocks = blocks,
                     .queries = config.queries,
                     .classes = config.classes,
                     .logits = logits.data(),
                     .boxes = boxes.data()});
      }
      std::vector<std::array<int64_t, 2>> sizes;
      for (const int64_t slot : readable.slots()) {
        sizes.push_back(
            annotated_size(dataset.truth().images[batch->images[slot]], batch->originals[slot]));
      }
      const std::vector<Detections> found =
          detections({.batch = count,
                      .queries = config.queries,
                      .classes = config.classes,
                      .logits = logits.data() + (blocks - 1) * rows * (config.classes + 1),
                      .boxes = boxes.data() + (blocks - 1) * rows * 4},
                     sizes);
      for (int64_t i = 0; i < count; ++i) {
        findings.put(batch->images[readable.slots()[i]], found[i]);
      }
    }
    loader.recycle(std::move(*batch));
    run.tell(++done, loader.batches());
  }
  DetectorEvaluation result;
  result.detections = findings.gather(run, dataset.truth().images, category_ids);
  result.images = findings.seen();
  check(result.images > 0, "evaluation: none of the pictures could be read");
  ThreadRuntime runtime(context.threads());
  result.numbers = coco::evaluate(dataset.truth(), result.detections, runtime);
  return result;
}

}  // namespace qna::predict
