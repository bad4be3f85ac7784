#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/text.h"
#include "qna/config/parameters.h"
#include "qna/config/registry.h"
#include "qna/engine/import_flax.h"
#include "qna/engine/model_file.h"

namespace qna::cli {
namespace {

struct ImportArguments {
  std::string file;
  std::string out;
  std::string model;
  std::string config;
  std::string labels;
  std::string dtype = "float32";
};

void run_import(const ImportArguments& a) {
  const format::FlaxState state = format::read_flax(a.file);
  std::string name = a.model;
  config::QnAViTConfig config;
  if (!a.config.empty()) {
    const config::NetworkConfig network = config::read_network(a.config);
    const auto* classifier = std::get_if<config::QnAViTConfig>(&network);
    check(classifier != nullptr,
          "{}: it describes {}, but the authors' checkpoints are classifiers", a.config,
          config::describe(config::kind_of(network)));
    config = *classifier;
  } else {
    if (name.empty()) name = engine::recognize_flax(state, a.file);
    config = config::find_model(name).config;
    // The head tells the number of classes.
    const auto logits = state.find("params.ClassificationHead_0.head_logits.bias");
    if (logits != state.end() && logits->second.shape.size() == 1) {
      config.classes = logits->second.shape[0];
    }
  }
  const engine::FlaxImport imported = engine::import_flax(state, config, a.file);
  engine::ModelInfo info{.name = name};
  info.preprocess.crop = config.image_size;
  info.preprocess.resize = std::min(config.image_size[0], config.image_size[1]) * 256 / 224;
  if (config.in_channels == 1) {
    info.preprocess.mean = {0.5f};
    info.preprocess.std = {0.5f};
  }
  if (!a.labels.empty()) info.labels = read_labels(a.labels);
  info.training = {{"imported_from", "flax checkpoint"}};
  engine::write_model_file(a.out, config, info, imported.views(), dtype_of(a.dtype), "import");

  for (const engine::FlaxTensor& tensor : imported.tensors) {
    fmt::print("{:<78} -> {} [{}]\n", tensor.flax_name, tensor.name, fmt::join(tensor.shape, ", "));
  }
  fmt::print("\n{} tensors, {} parameters{}; {} other entries (optimiser state, step) ignored\n",
             imported.tensors.size(),
             with_commas(config::learned_count(config::parameters(config))),
             name.empty() ? "" : ", " + name, imported.ignored.size());
  fmt::print("wrote {}\n", a.out);
}

}  // namespace

void add_import(Command program) {
  Command verb =
      program.verb("import", "Turn a checkpoint of the paper's authors into a weights file");
  auto a = std::make_shared<ImportArguments>();
  verb.option("file", a->file, "Flax checkpoint (msgpack)").required().type_name("FILE");
  verb.option("-o,--out", a->out, "Weights file to write (.safetensors)").required();
  Option model = verb.option("--model", a->model, "Which model it is [told by its tensors]");
  verb.option("--config", a->config, "Configuration of a model that is not listed").excludes(model);
  verb.option("--labels", a->labels, "Text file with one label per line, to be kept inside");
  verb.option("--dtype", a->dtype, "float32, float16 or bfloat16 in the file [float32]")
      .one_of(dtype_names());
  verb.footer(
      "Every tensor is listed. A tensor that is missing, left over or of another shape stops the\n"
      "import, and no file is written.\n\n"
      "Example:\n"
      "  qna import checkpoint_300 -o tiny.safetensors --labels imagenet.txt");
  verb.callback([a] { run_import(*a); });
}

}  // namespace qna::cli
