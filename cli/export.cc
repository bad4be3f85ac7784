#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "qna/base/text.h"
#include "qna/engine/model_file.h"

namespace qna::cli {
namespace {

struct ExportArguments {
  std::string file;
  std::string out;
  std::string dtype = "float16";
  std::string labels;
};

bool is_absolute_path(const nlohmann::json& value) {
  if (value.is_array()) return std::ranges::any_of(value, is_absolute_path);
  return value.is_string() && std::filesystem::path(value.get<std::string>()).is_absolute();
}

// Where somebody's files lie does not belong into a file that is passed on.
void leave_out_places(nlohmann::json& training) {
  if (!training.is_object() || !training.contains("recipe")) return;
  nlohmann::json& recipe = training["recipe"];
  for (const char* key : {"/data/path", "/model/backbone", "/model/weights", "/teacher/targets"}) {
    const nlohmann::json::json_pointer path(key);
    if (recipe.contains(path)) recipe.at(path.parent_pointer()).erase(path.back());
  }
  if (!recipe.contains("data")) return;
  nlohmann::json& data = recipe["data"];
  for (auto entry = data.begin(); entry != data.end();) {
    entry = is_absolute_path(*entry) ? data.erase(entry) : std::next(entry);
  }
}

void run_export(const ExportArguments& a) {
  const engine::ModelFile file = engine::ModelFile::open(a.file);
  file.check_tensors();
  engine::ModelInfo info = file.info();
  if (!a.labels.empty()) info.labels = read_labels(a.labels);
  leave_out_places(info.training);
  std::vector<format::TensorView> tensors;
  for (const format::TensorView& tensor : file.tensors().tensors()) {
    if (!tensor.name.starts_with(engine::kTrainingPrefix)) tensors.push_back(tensor);
  }
  engine::write_model_file(a.out, file.config(), info, tensors, dtype_of(a.dtype), "export");
  fmt::print("wrote {}, {} bytes\n", a.out,
             with_commas(static_cast<int64_t>(std::filesystem::file_size(a.out))));
}

}  // namespace

void add_export(Command program) {
  Command verb =
      program.verb("export", "Write a network without its training state, in another precision");
  auto a = std::make_shared<ExportArguments>();
  verb.option("file", a->file, "Weights or checkpoint of a run (.safetensors)")
      .required()
      .type_name("FILE");
  verb.option("-o,--out", a->out, "Weights file to write (.safetensors)").required();
  verb.option("--dtype", a->dtype, "float32, float16 or bfloat16 in the file [float16]")
      .one_of(dtype_names());
  verb.option("--labels", a->labels, "Text file with one label per line, to be kept inside");
  verb.footer(
      "Example:\n"
      "  qna export runs/imagenette/best.safetensors -o imagenette.safetensors");
  verb.callback([a] { run_export(*a); });
}

}  // namespace qna::cli
