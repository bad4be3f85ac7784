#include "qna/predict/shift.h"

#include <algorithm>

#include "qna/base/error.h"
#include "qna/predict/classify.h"

namespace qna::predict {
namespace {

// Where place `at` lies in a row of `size` that goes on as its mirror image at both ends.
int64_t mirrored(int64_t at, int64_t size) {
  if (at < 0) return -at - 1;
  return at < size ? at : 2 * size - 1 - at;
}

// The class of every image of a batch.
std::vector<int64_t> answers(const engine::Model& model, const data::Batch& batch,
                             const std::vector<float>& pixels, engine::Context& context) {
  const auto classes = model.classes();
  std::vector<float> logits(static_cast<size_t>(batch.count * classes));
  model.classify(
      {.batch = batch.count, .height = batch.height, .width = batch.width, .pixels = pixels.data()},
      logits.data(), context);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batch.count; ++i) {
    const auto row = logits.begin() + i * classes;
    out.push_back(std::max_element(row, row + classes) - row);
  }
  return out;
}

void shift_batch(const data::Batch& batch, int64_t down, int64_t right, std::vector<float>& out) {
  const auto size = static_cast<size_t>(batch.height * batch.width * batch.channels);
  out.resize(batch.pixels.size());
  for (size_t i = 0; i < static_cast<size_t>(batch.count); ++i) {
    shift_image(std::span(batch.pixels).subspan(i * size, size), batch.height, batch.width,
                batch.channels, down, right, std::span(out).subspan(i * size, size));
  }
}

}  // namespace

void shift_image(std::span<const float> image, int64_t height, int64_t width, int64_t channels,
                 int64_t down, int64_t right, std::span<float> out) {
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from_y = mirrored(y - down, height);
    for (int64_t x = 0; x < width; ++x) {
      const int64_t from = (from_y * width + mirrored(x - right, width)) * channels;
      std::copy_n(image.begin() + from, channels, out.begin() + (y * width + x) * channels);
    }
  }
}

std::vector<ShiftEvaluation> evaluate_shifts(const engine::Model& model, data::Loader& loader,
                                             std::span<const int64_t> shifts,
                                             engine::Context& context, const EvaluationRun& run) {
  check_has_classes(model);
  constexpr int64_t kDirections[][2] = {{1, 1}, {1, -1}, {-1, 1}, {-1, -1}};
  std::vector<double> sums(1 + 2 * shifts.size());  // images; of each shift: right, same
  std::vector<float> moved;
  loader.start(0);
  int64_t done = 0;
  while (std::optional<data::Batch> batch = loader.next()) {
    const std::vector<int64_t> still =
        batch->count > 0 ? answers(model, *batch, batch->pixels, context) : std::vector<int64_t>();
    for (const int64_t label : batch->labels) sums[0] += label >= 0;
    for (size_t s = 0; s < shifts.size() && batch->count > 0; ++s) {
      check(shifts[s] >= 1 && shifts[s] < std::min(batch->height, batch->width),
            "shift must be from 1 to below the pictures' {} x {} pixels, got {}", batch->height,
            batch->width, shifts[s]);
      for (const auto& [down, right] : kDirections) {
        shift_batch(*batch, down * shifts[s], right * shifts[s], moved);
        const std::vector<int64_t> now = answers(model, *batch, moved, context);
        for (int64_t i = 0; i < batch->count; ++i) {
          if (batch->labels[i] < 0) continue;  // a broken image
          sums[1 + 2 * s] += now[i] == batch->labels[i];
          sums[2 + 2 * s] += now[i] == still[i];
        }
      }
    }
    loader.recycle(std::move(*batch));
    run.tell(++done, loader.batches());
  }
  run.sum(sums);
  check(sums[0] > 0, "evaluation: none of the pictures could be read");
  std::vector<ShiftEvaluation> out;
  const double answered = sums[0] * static_cast<double>(std::size(kDirections));
  for (size_t s = 0; s < shifts.size(); ++s) {
    out.push_back({.pixels = shifts[s],
                   .top1 = 100 * sums[1 + 2 * s] / answered,
                   .same = 100 * sums[2 + 2 * s] / answered});
  }
  return out;
}

}  // namespace qna::predict
