#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/image_loop.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/text.h"
#include "qna/data/image_stream.h"
#include "qna/predict/features.h"

namespace qna::cli {
namespace {

constexpr auto kReplaceBadText = nlohmann::json::error_handler_t::replace;

struct FeaturesArguments {
  std::string file;
  std::string weight_type;
  std::vector<std::string> images;
  std::string out;
  bool map = false;
  BatchOptions batches;
};

// Those of all batches, one behind the other.
class Collected {
 public:
  void add(const predict::Features& features, const std::vector<std::string>& paths) {
    const auto& shape = features.shape;
    check(names_.empty() || std::equal(shape.begin() + 1, shape.end(), shape_.begin() + 1),
          "--map: all pictures must have one size, {} gives {} after {}", paths.front(),
          in_brackets(std::span(shape).subspan(1)),
          in_brackets(names_.empty() ? std::span<const int64_t>() : std::span(shape_).subspan(1)));
    const int64_t before = names_.empty() ? 0 : shape_[0];
    shape_ = shape;
    shape_[0] += before;
    values_.insert(values_.end(), features.values.begin(), features.values.end());
    names_.insert(names_.end(), paths.begin(), paths.end());
  }

  bool empty() const { return names_.empty(); }
  const std::vector<int64_t>& shape() const { return shape_; }

  void write(const std::string& path) const {
    const format::TensorView view{.name = "features",
                                  .dtype = format::DType::kF32,
                                  .shape = shape_,
                                  .bytes = std::as_bytes(std::span(values_))};
    format::write_safetensors(
        path, {&view, 1},
        {{"images", nlohmann::json(names_).dump(-1, ' ', false, kReplaceBadText)}});
  }

 private:
  std::vector<int64_t> shape_;
  std::vector<float> values_;
  std::vector<std::string> names_;
};

void run_features(const FeaturesArguments& a) {
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  model.classifier();  // or else it says what the file holds
  const std::vector<std::string> paths = find_pictures(a.images, /*standard_input=*/true);
  engine::Context context(a.batches.threads);
  const auto kind = a.map ? predict::FeatureKind::kMap : predict::FeatureKind::kPooled;
  Collected all;
  const auto collect = [&](const ImageBatch& batch) {
    all.add(predict::features(model, batch.images, kind, context), batch.paths);
  };
  const auto report = [](const std::string&, const std::string& message) {
    fmt::print(stderr, "qna: {}\n", message);
  };
  const int64_t failed = for_each_batch(paths, model.info().preprocess, a.batches, collect, report);
  check(!all.empty(), "none of the {} pictures could be read, nothing was written", paths.size());
  all.write(a.out);
  fmt::print("wrote {}: features {}\n", a.out, in_brackets(all.shape()));
  check_all_used(failed, paths);
}

}  // namespace

void add_features(Command program) {
  Command verb = program.verb("features", "Write what a model makes of pictures to a file");
  auto a = std::make_shared<FeaturesArguments>();
  add_pictures(verb, a->images, config::Kind::kClassifier, /*standard_input=*/true);
  verb.option("-o,--out", a->out, "File to write (.safetensors)").required();
  verb.flag("--map", a->map, "The last stage's whole map instead of one vector per picture");
  verb.option("--batch", a->batches.batch, "Pictures that run together [8]").range(1, 4096);
  add_engine_options(verb, a->batches.threads, a->weight_type);
  verb.footer(
      "The file holds one tensor, 'features': [pictures, features], or [pictures, height, width,\n"
      "features] with --map. Its metadata entry 'images' lists the pictures in that order.\n\n"
      "Examples:\n"
      "  qna features pictures/ -o pictures.safetensors\n"
      "  qna features model.safetensors pictures/ -o pictures.safetensors\n"
      "  python3 -c \"from safetensors.numpy import load_file; "
      "print(load_file('pictures.safetensors'))\"");
  verb.callback([a] {
    a->file = take_weights(a->images, config::Kind::kClassifier);
    run_features(*a);
  });
}

}  // namespace qna::cli
