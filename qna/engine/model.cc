#include "qna/engine/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "qna/base/error.h"
#include "qna/engine/auto_encoder.h"
#include "qna/engine/detr.h"
#include "qna/engine/qna_vit.h"
#include "qna/kernels/implementation.h"

namespace qna::engine {

struct Model::Parts {
  NetworkConfig config;
  ModelInfo info;
  std::string origin;
  const kernels::Implementation* implementation;  // that packed the weights
  // One of these.
  std::unique_ptr<const QnAViT> classifier;
  std::unique_ptr<const Detr> detector;
  std::unique_ptr<const AutoEncoder> auto_encoder;
};

namespace {

// Images that run together in one thread: enough that a weight, once loaded, serves many rows, few
// enough that their maps stay near.
constexpr int64_t kTogether = 8;

void check_images(const Images& images, int64_t channels, const char* who) {
  check(images.batch >= 0, "{}: batch must be at least 0, got {}", who, images.batch);
  constexpr int64_t kMostSide = int64_t{1} << 20;
  for (const int64_t side : {images.height, images.width}) {
    check(side >= 1 && side <= kMostSide, "{}: height and width must be from 1 to {}, got {} x {}",
          who, kMostSide, images.height, images.width);
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  check(images.batch <= kMost / (images.height * images.width) / channels,
        "{}: the images must have at most 2^40 numbers, got {} x {} x {} x {}", who, images.batch,
        images.height, images.width, channels);
  check(images.pixels != nullptr || images.batch == 0, "{}: pixels must be given", who);
}

using RunPart = FunctionRef<void(const ImageBatch& part, int64_t first, Worker& worker)>;

// The part of an image that its mask does not cut off at the bottom and right, at least 1 x 1.
struct Cut {
  int64_t height = 1, width = 1;
  bool whole = true;  // without holes
};

Cut cut_of(const uint8_t* mask, int64_t height, int64_t width) {
  Cut cut;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      if (mask[y * width + x] == 0) continue;
      cut.height = std::max(cut.height, y + 1);
      cut.width = std::max(cut.width, x + 1);
    }
  for (int64_t y = 0; y < cut.height; ++y)
    for (int64_t x = 0; x < cut.width; ++x) cut.whole &= mask[y * width + x] != 0;
  return cut;
}

// One image of a masked batch by itself, as it is: nothing is computed of what lies around it.
void run_masked_image(const Images& images, int64_t channels, int64_t index, RunPart run,
                      Worker& worker) {
  const int64_t pixels = images.height * images.width;
  const uint8_t* mask = images.mask + index * pixels;
  const float* from = images.pixels + index * pixels * channels;
  const Cut cut = cut_of(mask, images.height, images.width);
  Scope scope(worker.arena);
  ImageBatch image{1, cut.height, cut.width, from, nullptr};
  const bool all = cut.height == images.height && cut.width == images.width;
  if (!all) {
    float* to = scope.floats(cut.height * cut.width * channels);
    for (int64_t y = 0; y < cut.height; ++y) {
      std::memcpy(to + y * cut.width * channels, from + y * images.width * channels,
                  cut.width * channels * sizeof(float));
    }
    image.pixels = to;
  }
  if (!cut.whole) {
    uint8_t* to = scope.bytes(cut.height * cut.width);
    for (int64_t y = 0; y < cut.height; ++y) {
      std::memcpy(to + y * cut.width, mask + y * images.width, cut.width);
    }
    image.mask = to;
  }
  run(image, index, worker);
}

// Images are independent of each other, and threads that share none of their work need not wait for
// each other after every layer: as long as there is an image for each thread, each has its own;
// what is left they do together. A visitor sees one part, all images in order.
void run_all(const Images& images, int64_t channels, Context& context, bool visited, RunPart run) {
  Context::State& state = context.state();
  const int64_t threads = state.runtime.workers();
  const int64_t numbers = images.height * images.width * channels;
  const auto run_part = [&](int64_t first, int64_t count, Worker& worker) {
    if (images.mask == nullptr) {
      run({count, images.height, images.width, images.pixels + first * numbers, nullptr}, first,
          worker);
      return;
    }
    for (int64_t i = first; i < first + count; ++i) {
      run_masked_image(images, channels, i, run, worker);
    }
  };
  int64_t first = 0;
  while (threads > 1 && !visited && images.batch - first >= threads) {
    const int64_t count = std::min(kTogether, (images.batch - first) / threads);
    state.runtime.for_each(threads, [&](int64_t i, int) {
      Context::State::Own& own = *state.own[i];  // whichever thread takes it
      Worker worker{own.runtime, own.arena};
      run_part(first + i * count, count, worker);
    });
    first += threads * count;
  }
  Worker worker{state.runtime, state.arena};
  while (first < images.batch) {
    const int64_t left = images.batch - first;
    const int64_t count = visited ? left : std::min(kTogether, left);
    run_part(first, count, worker);
    first += count;
  }
}

}  // namespace

Model Model::open(const std::string& path, const ModelOptions& options) {
  return Model(ModelFile::open(path), options);
}

Model::Model(const ModelFile& file, const ModelOptions& options) {
  file.check_tensors();
  auto parts = std::make_shared<Parts>();
  parts->config = file.config();
  parts->info = file.info();
  parts->origin = file.origin();
  parts->implementation = &kernels::chosen_implementation();
  const Tensors tensors(file, options.weight_type);
  switch (file.kind()) {
    case Kind::kClassifier:
      parts->classifier =
          std::make_unique<QnAViT>(tensors, std::get<config::QnAViTConfig>(parts->config));
      break;
    case Kind::kDetector:
      parts->detector =
          std::make_unique<Detr>(tensors, std::get<config::DetrConfig>(parts->config));
      break;
    case Kind::kAutoEncoder:
      parts->auto_encoder = std::make_unique<AutoEncoder>(
          tensors, std::get<config::AutoEncoderConfig>(parts->config));
  }
  parts_ = std::move(parts);
}

Kind Model::kind() const { return kind_of(parts_->config); }
const NetworkConfig& Model::config() const { return parts_->config; }
const ModelInfo& Model::info() const { return parts_->info; }
const std::string& Model::origin() const { return parts_->origin; }

const config::QnAViTConfig& Model::classifier() const {
  return config_as<config::QnAViTConfig>(config(), origin());
}
const config::DetrConfig& Model::detector() const {
  return config_as<config::DetrConfig>(config(), origin());
}
const config::AutoEncoderConfig& Model::auto_encoder() const {
  return config_as<config::AutoEncoderConfig>(config(), origin());
}

size_t Model::bytes() const {
  if (parts_->classifier) return parts_->classifier->bytes();
  return parts_->detector ? parts_->detector->bytes() : parts_->auto_encoder->bytes();
}

namespace {
// Weights are packed for one implementation of the kernels.
void check_implementation(const kernels::Implementation* packed) {
  check(packed == &kernels::chosen_implementation(),
        "the model was opened for the kernel '{}', but '{}' is chosen now; open it again",
        packed->name, kernels::chosen_implementation().name);
}
}  // namespace

void Model::classify(const Images& images, float* logits, Context& context,
                     Visitor* visitor) const {
  classifier();
  check_images(images, channels(), "classify");
  check_implementation(parts_->implementation);
  run_all(images, channels(), context, visitor != nullptr,
          [&](const ImageBatch& part, int64_t first, Worker& worker) {
            float* to = logits == nullptr ? nullptr : logits + first * classes();
            parts_->classifier->run(part, to, worker, visitor);
          });
}

void Model::detect(const Images& images, const Detections& out, Context& context,
                   Visitor* visitor) const {
  detector();
  check_images(images, channels(), "detect");
  check_implementation(parts_->implementation);
  check((out.logits == nullptr) == (out.boxes == nullptr),
        "detect: logits and boxes must be given both or neither");
  for (int64_t i = 0; images.mask != nullptr && i < images.batch; ++i) {
    check(images.mask[i * images.height * images.width] != 0,
          "detect: each image must have its top left pixel inside the mask, got one without: "
          "image {}",
          i);
  }
  run_all(images, channels(), context, visitor != nullptr,
          [&](const ImageBatch& part, int64_t first, Worker& worker) {
            parts_->detector->run(part,
                                  {out.logits, out.boxes, out.every_block, first, images.batch},
                                  worker, visitor);
          });
}

void Model::reconstruct(const Images& images, float* out, Context& context,
                        Visitor* visitor) const {
  auto_encoder();
  check_images(images, channels(), "reconstruct");
  check_implementation(parts_->implementation);
  check(images.mask == nullptr, "reconstruct: an auto-encoder takes no mask");
  const int64_t numbers = images.height * images.width * channels();
  run_all(images, channels(), context, visitor != nullptr,
          [&](const ImageBatch& part, int64_t first, Worker& worker) {
            parts_->auto_encoder->run(part, out + first * numbers, worker, visitor);
          });
}

std::vector<AttentionLayer> Model::attention_layers() const {
  if (kind() == Kind::kDetector) return parts_->detector->attention_layers();
  classifier();
  return parts_->classifier->attention_layers();
}

std::vector<AttentionLayer> typical_attention_layers(const Model& model) {
  const std::vector<AttentionLayer> layers = model.attention_layers();
  // Backwards, a layer is the last of its kind if none was seen before.
  std::set<int64_t> seen;
  bool seen_self_attention = false;
  std::vector<AttentionLayer> chosen;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (layer->name.find("blocks") == std::string::npos) continue;
    const bool is_last = layer->learned_queries ? seen.insert(layer->stage).second
                                                : !std::exchange(seen_self_attention, true);
    if (is_last) chosen.push_back(*layer);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

AttentionLayer find_attention_layer(const Model& model, std::string_view name) {
  std::vector<std::string> names;
  for (const AttentionLayer& layer : model.attention_layers()) {
    std::string brief = layer.name;
    for (const std::string_view part : {"stages.", "blocks."}) {
      if (const size_t at = brief.find(part); at != std::string::npos) brief.erase(at, part.size());
    }
    if (name == layer.name || name == brief) return layer;
    names.push_back(std::move(brief));
  }
  check(!names.empty(), "there is no layer '{}': this network has neither QnA nor self-attention",
        name);
  fail("there is no layer '{}' with attention maps; the layers are {}", name,
       fmt::join(names, ", "));
}

}  // namespace qna::engine
