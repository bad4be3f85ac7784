// The C interface: arguments are checked here, the work is that of predict/. No exception leaves.
#include "qna/c/qna.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <new>

#include "qna/base/error.h"
#include "qna/base/version.h"
#include "qna/c/context_pool.h"
#include "qna/image/color.h"
#include "qna/image/read.h"
#include "qna/predict/classify.h"
#include "qna/predict/detect.h"
#include "qna/predict/features.h"
#include "qna/predict/input.h"

struct qna_model {
  explicit qna_model(qna::engine::Model opened)
      : model(std::move(opened)), config(qna::config::to_json(model.config()).dump()) {}

  const qna::engine::Model model;
  const std::string config;
  mutable qna::c::ContextPool contexts;
};

namespace {

using qna::check;
using qna::image::Image;

// A plain array: setting it cannot fail, and it needs no destructor when a thread ends.
thread_local char last_error[1024] = "";

qna_status failed(qna_status status, const char* message) {
  std::snprintf(last_error, sizeof(last_error), "%s", message);
  return status;
}

// A qna::Error that has a code of its own.
struct StatusError : qna::Error {
  StatusError(qna_status which, const std::string& message) : qna::Error(message), status(which) {}
  qna_status status;
};

// Runs `work`; a qna::Error of it becomes `status`.
template <typename Work>
qna_status guarded(qna_status status, const Work& work) noexcept {
  try {
    work();
    return QNA_OK;
  } catch (const StatusError& error) {
    return failed(error.status, error.what());
  } catch (const qna::Error& error) {
    return failed(status, error.what());
  } catch (const std::bad_alloc&) {
    return failed(QNA_ERROR_MEMORY, "not enough memory");
  } catch (const std::exception& error) {
    return failed(QNA_ERROR_INTERNAL, error.what());
  } catch (...) {
    return failed(QNA_ERROR_INTERNAL, "unknown error");
  }
}

// As guarded(), for errors inside another one.
template <typename Work>
auto as_status(qna_status status, const Work& work) {
  try {
    return work();
  } catch (const StatusError&) {
    throw;
  } catch (const qna::Error& error) {
    throw StatusError(status, error.what());
  }
}

template <typename... Args>
void check_argument(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (condition) return;
  throw StatusError(QNA_ERROR_ARGUMENT, fmt::format(message, std::forward<Args>(args)...));
}

void check_pointer(const void* pointer, const char* name) {
  check_argument(pointer != nullptr, "{} must not be NULL", name);
}

constexpr int64_t kLargestSide = 1 << 20;

void check_side(int64_t side, const char* name) {
  check_argument(side >= 1 && side <= kLargestSide, "{} must be from 1 to {}, got {}", name,
                 kLargestSide, side);
}

qna::engine::ModelOptions options_of(int weight_type) {
  check_argument(weight_type == QNA_FLOAT32 || weight_type == QNA_BFLOAT16,
                 "weight_type must be QNA_FLOAT32 (0) or QNA_BFLOAT16 (1), got {}", weight_type);
  return {.weight_type = weight_type == QNA_BFLOAT16 ? qna::engine::WeightType::kBFloat16
                                                     : qna::engine::WeightType::kFloat32};
}

// ---- images, from wherever they come, in the model's channels ----

qna::image::ReadOptions read_options(const qna_model& model) {
  return {.channels = model.model.channels(), .min_side = model.model.info().preprocess.resize};
}

struct FromPixels {
  const qna_pixels* pixels;

  void check_arguments() const {
    check_pointer(pixels, "pixels");
    check_pointer(pixels->rgb, "pixels->rgb");
    check_side(pixels->height, "pixels->height");
    check_side(pixels->width, "pixels->width");
    check_argument(pixels->stride == 0 || pixels->stride >= 3 * pixels->width,
                   "pixels->stride must be 0 or at least 3 * width ({}), got {}", 3 * pixels->width,
                   pixels->stride);
  }
  Image read(const qna_model& model) const {
    Image image = qna::image::make_image(pixels->height, pixels->width, 3);
    const int64_t stride = pixels->stride == 0 ? image.row_bytes() : pixels->stride;
    for (int64_t y = 0; y < image.height; ++y) {
      std::copy_n(pixels->rgb + y * stride, image.row_bytes(), image.row(y));
    }
    return qna::image::to_channels(std::move(image), model.model.channels());
  }
};

struct FromFile {
  const char* path;
  bool whole = false;  // a detector's boxes are in pixels of the file

  void check_arguments() const { check_pointer(path, "path"); }
  Image read(const qna_model& model) const {
    qna::image::ReadOptions options = read_options(model);
    if (whole) options.min_side = 0;
    return qna::image::read_image(path, options);
  }
};

struct FromMemory {
  const void* bytes;
  size_t size;
  bool whole = false;

  void check_arguments() const { check_pointer(bytes, "bytes"); }
  Image read(const qna_model& model) const {
    qna::image::ReadOptions options = read_options(model);
    if (whole) options.min_side = 0;
    return qna::image::decode_image({static_cast<const uint8_t*>(bytes), size}, "picture in memory",
                                    options);
  }
};

// ---- the work ----

template <typename Source>
qna_status predict(const qna_model* model, const Source& source, size_t capacity, qna_class* best,
                   size_t* count) noexcept {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    source.check_arguments();
    check_pointer(best, "best");
    check_pointer(count, "count");
    as_status(QNA_ERROR_KIND, [&] { qna::predict::check_has_classes(model->model); });
    const Image image = as_status(QNA_ERROR_IMAGE, [&] { return source.read(*model); });
    const qna::c::ContextPool::Lease lease = model->contexts.take();
    const qna::predict::Classes classes =
        qna::predict::classify(model->model, image, lease.context());
    const auto wanted = std::min(capacity, classes.probabilities.size());
    const auto top = classes.top(static_cast<int64_t>(wanted));
    for (size_t i = 0; i < top.size(); ++i) best[i] = {top[i].label, top[i].probability};
    *count = top.size();
  });
}

int64_t feature_count(const qna::engine::Model& model) {
  if (model.kind() != qna::config::Kind::kClassifier) return 0;
  return model.classifier().features(model.classifier().stages.size() - 1);
}

template <typename Source>
qna_status features(const qna_model* model, const Source& source, size_t capacity,
                    float* values) noexcept {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    source.check_arguments();
    check_pointer(values, "values");
    as_status(QNA_ERROR_KIND, [&] { model->model.classifier(); });
    const auto needed = static_cast<size_t>(feature_count(model->model));
    check_argument(capacity >= needed,
                   "capacity must be at least {}, as the model has features, got {}", needed,
                   capacity);
    const Image image = as_status(QNA_ERROR_IMAGE, [&] { return source.read(*model); });
    const qna::config::Preprocess& preprocess = model->model.info().preprocess;
    const qna::predict::Input input(qna::data::fit(image, preprocess), preprocess);
    const qna::c::ContextPool::Lease lease = model->contexts.take();
    const qna::predict::Features made = qna::predict::features(
        model->model, input.images(), qna::predict::FeatureKind::kPooled, lease.context());
    check(made.values.size() == needed, "{} features instead of {}", made.values.size(), needed);
    std::copy(made.values.begin(), made.values.end(), values);
  });
}

template <typename Source>
qna_status detect(const qna_model* model, const Source& source, double threshold, size_t capacity,
                  qna_box* boxes, size_t* count) noexcept {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    source.check_arguments();
    check_pointer(boxes, "boxes");
    check_pointer(count, "count");
    check_argument(threshold >= 0 && threshold <= 1, "threshold must be from 0 to 1, got {}",
                   threshold);
    as_status(QNA_ERROR_KIND, [&] { model->model.detector(); });
    const Image image = as_status(QNA_ERROR_IMAGE, [&] { return source.read(*model); });
    const qna::c::ContextPool::Lease lease = model->contexts.take();
    const qna::predict::Detections found =
        qna::predict::find_objects(model->model, image, model->model.info().preprocess,
                                   {.threshold = threshold, .sorted = true}, lease.context())
            .found;
    *count = std::min(capacity, found.size());
    for (size_t i = 0; i < *count; ++i) {
      const auto& [left, top, right, bottom] = found[i].box;
      boxes[i] = {left, top, right, bottom, found[i].score, found[i].label};
    }
  });
}

}  // namespace

extern "C" {

const char* qna_last_error(void) { return last_error; }

const char* qna_version(void) { return qna::version(); }

qna_status qna_open(const char* path, qna_model** model) {
  return qna_open_as(path, QNA_FLOAT32, model);
}

qna_status qna_open_memory(const void* bytes, size_t size, qna_model** model) {
  return qna_open_memory_as(bytes, size, QNA_FLOAT32, model);
}

qna_status qna_open_as(const char* path, int weight_type, qna_model** model) {
  return guarded(QNA_ERROR_MODEL, [&] {
    check_pointer(path, "path");
    check_pointer(model, "model");
    *model = new qna_model(qna::engine::Model::open(path, options_of(weight_type)));
  });
}

qna_status qna_open_memory_as(const void* bytes, size_t size, int weight_type, qna_model** model) {
  return guarded(QNA_ERROR_MODEL, [&] {
    check_pointer(bytes, "bytes");
    check_pointer(model, "model");
    const qna::engine::ModelOptions options = options_of(weight_type);
    auto copy = std::make_shared<const std::string>(static_cast<const char*>(bytes), size);
    const auto file = qna::engine::ModelFile::parse(std::move(copy), "weights in memory");
    *model = new qna_model(qna::engine::Model(file, options));
  });
}

void qna_close(qna_model* model) { delete model; }

qna_status qna_set_threads(qna_model* model, int threads) {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    check_argument(threads >= 0 && threads <= 1024, "threads must be from 0 to 1024, got {}",
                   threads);
    model->contexts.set_threads(threads);
  });
}

qna_status qna_describe(const qna_model* model, qna_description* description) {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    check_pointer(description, "description");
    const qna::engine::Model& m = model->model;
    const bool detector = m.kind() == qna::config::Kind::kDetector;
    *description = {.kind = static_cast<qna_kind>(m.kind()),
                    .name = m.info().name.c_str(),
                    .classes = m.classes(),
                    .channels = m.channels(),
                    .height = m.info().preprocess.crop[0],
                    .width = m.info().preprocess.crop[1],
                    .features = feature_count(m),
                    .queries = detector ? m.detector().queries : 0,
                    .config = model->config.c_str()};
  });
}

const char* qna_label(const qna_model* model, int64_t index) {
  if (model == nullptr) return nullptr;
  const std::vector<std::string>& labels = model->model.info().labels;
  if (index < 0 || index >= static_cast<int64_t>(labels.size())) return nullptr;
  return labels[static_cast<size_t>(index)].c_str();
}

qna_status qna_predict_pixels(const qna_model* model, const qna_pixels* pixels, size_t capacity,
                              qna_class* best, size_t* count) {
  return predict(model, FromPixels{pixels}, capacity, best, count);
}
qna_status qna_predict_file(const qna_model* model, const char* path, size_t capacity,
                            qna_class* best, size_t* count) {
  return predict(model, FromFile{path}, capacity, best, count);
}
qna_status qna_predict_memory(const qna_model* model, const void* bytes, size_t size,
                              size_t capacity, qna_class* best, size_t* count) {
  return predict(model, FromMemory{bytes, size}, capacity, best, count);
}

qna_status qna_features_pixels(const qna_model* model, const qna_pixels* pixels, size_t capacity,
                               float* values) {
  return features(model, FromPixels{pixels}, capacity, values);
}
qna_status qna_features_file(const qna_model* model, const char* path, size_t capacity,
                             float* values) {
  return features(model, FromFile{path}, capacity, values);
}
qna_status qna_features_memory(const qna_model* model, const void* bytes, size_t size,
                               size_t capacity, float* values) {
  return features(model, FromMemory{bytes, size}, capacity, values);
}

qna_status qna_logits(const qna_model* model, const float* pixels, int64_t batch, int64_t height,
                      int64_t width, size_t capacity, float* logits) {
  return guarded(QNA_ERROR_INTERNAL, [&] {
    check_pointer(model, "model");
    check_pointer(pixels, "pixels");
    check_pointer(logits, "logits");
    check_argument(batch >= 1 && batch <= kLargestSide, "batch must be from 1 to {}, got {}",
                   kLargestSide, batch);
    check_side(height, "height");
    check_side(width, "width");
    as_status(QNA_ERROR_KIND, [&] { qna::predict::check_has_classes(model->model); });
    const auto needed = static_cast<size_t>(batch * model->model.classes());
    check_argument(capacity >= needed,
                   "capacity must be at least {}, as there are classes and images, got {}", needed,
                   capacity);
    const qna::c::ContextPool::Lease lease = model->contexts.take();
    model->model.classify({.batch = batch, .height = height, .width = width, .pixels = pixels},
                          logits, lease.context());
  });
}

qna_status qna_detect_pixels(const qna_model* model, const qna_pixels* pixels, double threshold,
                             size_t capacity, qna_box* boxes, size_t* count) {
  return detect(model, FromPixels{pixels}, threshold, capacity, boxes, count);
}
qna_status qna_detect_file(const qna_model* model, const char* path, double threshold,
                           size_t capacity, qna_box* boxes, size_t* count) {
  return detect(model, FromFile{path, /*whole=*/true}, threshold, capacity, boxes, count);
}
qna_status qna_detect_memory(const qna_model* model, const void* bytes, size_t size,
                             double threshold, size_t capacity, qna_box* boxes, size_t* count) {
  return detect(model, FromMemory{bytes, size, /*whole=*/true}, threshold, capacity, boxes, count);
}

}  // extern "C"
