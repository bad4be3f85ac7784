#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/image_batches.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/data/image_stream.h"
#include "qna/ops/geometry.h"

namespace qna::cli {
namespace {

constexpr auto kReplaceBadText = nlohmann::json::error_handler_t::replace;

struct Arguments {
  std::string file;
  std::vector<std::string> images;
  std::string out;
  bool map = false;
  BatchOptions batches;
};

void run(const Arguments& a) {
  const torch::InferenceMode inference;
  checkpoint::LoadedModel loaded = open_weights(a.file);
  const std::vector<std::string> paths = data::find_images(a.images);
  std::vector<torch::Tensor> parts;
  std::vector<std::string> names;
  const auto collect = [&](const ImageBatch& batch) {
    torch::Tensor features = loaded.model->forward_features(batch.images);  // [B, H, W, C]
    if (!a.map) {
      features = loaded.model->head ? loaded.model->head->pool(features)
                                    : loaded.model->forward_head(features);  // [B, C]
    }
    check(parts.empty() || parts.front().sizes().slice(1) == features.sizes().slice(1),
          "--map: all pictures must have one size, {} gives {} after {}", batch.paths.front(),
          ops::sizes_text(features.sizes().slice(1)),
          ops::sizes_text(parts.empty() ? at::IntArrayRef() : parts.front().sizes().slice(1)));
    parts.push_back(features);
    names.insert(names.end(), batch.paths.begin(), batch.paths.end());
  };
  const auto report = [](const std::string&, const std::string& message) {
    fmt::print(stderr, "qna: {}\n", message);
  };
  const int64_t failed = for_each_batch(paths, loaded.info.preprocess, a.batches, collect, report);
  check(!parts.empty(), "none of the {} pictures could be read, nothing was written", paths.size());
  const torch::Tensor features = torch::cat(parts);
  const format::TensorView view = checkpoint::view_of("features", features);
  format::write_safetensors(
      a.out, {&view, 1}, {{"images", nlohmann::json(names).dump(-1, ' ', false, kReplaceBadText)}});
  fmt::print("wrote {}: features {}\n", a.out, ops::sizes_text(features.sizes()));
  check(failed == 0, "{} of {} pictures could not be read", failed, paths.size());
}

}  // namespace

void add_features(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("features", "Write what a model makes of pictures to a file");
  auto a = std::make_shared<Arguments>();
  verb->add_option("file", a->file, "Weights (.safetensors)")->required()->type_name("FILE");
  verb->add_option("images", a->images, "Pictures, or folders of them (JPEG, PNG)")
      ->required()
      ->type_name("IMAGE");
  verb->add_option("-o,--out", a->out, "File to write (.safetensors)")->required();
  verb->add_flag("--map", a->map, "The last stage's whole map instead of one vector per picture");
  verb->add_option("--batch", a->batches.batch, "Pictures that run together [8]")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  verb->footer(
      "The file holds one tensor, 'features': [pictures, features], or [pictures, height, width,\n"
      "features] with --map. Its metadata entry 'images' lists the pictures in that order.\n\n"
      "Examples:\n"
      "  qna features model.safetensors photos/ -o photos.safetensors\n"
      "  python3 -c \"from safetensors.numpy import load_file; "
      "print(load_file('photos.safetensors'))\"");
  verb->callback([a] { run(*a); });
}

}  // namespace qna::cli
