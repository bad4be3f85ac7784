#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/explore.h"
#include "cli/image_loop.h"
#include "cli/input_size.h"
#include "cli/model_argument.h"
#include "cli/output_folder.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/base/file.h"
#include "qna/data/image_stream.h"
#include "qna/image/color.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/predict/attention.h"
#include "qna/predict/attention_sheets.h"
#include "qna/predict/classify.h"
#include "qna/predict/input.h"
#include "qna/report/html.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;
using image::Image;

struct AttendArguments {
  std::string file;  // weights
  std::string weight_type;
  std::vector<std::string> images;
  std::string out;
  std::vector<std::string> layers;  // empty: typical ones
  std::string size;                 // empty: the model's
  bool kernels = true;
  int threads = 0;  // 0: one per core
  predict::SheetStyle style;
  bool explore = false;
  double threshold = 0.5;  // of a detector's boxes on the page
};

Image read_at(const std::string& path, const InputSize& size) {
  const Image image = image::read_image(
      path, {.channels = size.preprocess.channels(), .min_side = size.least_side()});
  return fit(image, size, path);
}

// A page that shows the files, which lie beside it.
class Page {
 public:
  void add_image(const std::string& name) { body_ += "<h2>" + report::escape(name) + "</h2>\n"; }
  void add_sheet(const std::string& file) {
    body_ += "<p>" + report::escape(file) + "</p>\n<a href=\"" + address(file) +
             "\"><img loading=\"lazy\" src=\"" + address(file) + "\" alt=\"\"></a>\n";
  }
  std::string html() const {
    return "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Attention</title>\n"
           "<style>body { font-family: sans-serif; margin: 2em }\n"
           "img { max-width: 100%; border: 1px solid #ccc }</style>\n" +
           body_;
  }

 private:
  static std::string address(const std::string& file) {
    std::string out;
    for (const char c : file) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain = std::isalnum(byte) != 0 || c == '.' || c == '-' || c == '_';
      out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
    }
    return out;
  }
  std::string body_;
};

std::vector<std::string> choose_layers(const engine::Model& model, const AttendArguments& a) {
  std::vector<engine::AttentionLayer> layers;
  for (const std::string& name : a.layers) {
    layers.push_back(engine::find_attention_layer(model, name));
  }
  if (layers.empty()) layers = engine::typical_attention_layers(model);
  check(!layers.empty(), "{}: no layer of this model attends", a.file);
  std::vector<std::string> names;
  for (const engine::AttentionLayer& layer : layers) {
    for (const int64_t head : a.style.heads) {
      check(head < layer.heads, "--head: {} has heads 0 to {}, got {}", layer.name, layer.heads - 1,
            head);
    }
    names.push_back(layer.name);
  }
  return names;
}

void run_attend(const AttendArguments& a) {
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  const config::Preprocess& preprocess = model.info().preprocess;
  model.classifier();  // or else it says what the file holds
  const InputSize size = input_size(a.size, model);
  const predict::AttentionOptions options{.layers = choose_layers(model, a),
                                          .kernel_side = a.kernels ? predict::kKernelSide : 0};
  const std::vector<std::string> paths = find_pictures(a.images);
  make_output_folder(a.out);

  Page page;
  const auto write = [&](const std::string& file, const Image& sheet, Progress& progress) {
    const std::string path = (fs::path(a.out) / file).string();
    image::write_png(path, sheet);
    progress.wipe();
    page.add_sheet(file);
    fmt::print("{}\n", path);
    std::fflush(stdout);
  };
  engine::Context context(a.threads);
  UniqueStems stems;
  const auto read = [&](const std::string& path) { return read_at(path, size); };
  const auto look_at = [&](size_t i, const Image& seen, Progress& progress) {
    const Image image = image::to_channels(seen, 3);
    const std::string stem = stems.of(paths[i]);
    const std::string name = fs::path(paths[i]).filename().string();
    const predict::Input input(seen, preprocess);
    const auto maps = predict::attention_of(model, input.images(), options, context);
    predict::SheetStyle style = a.style;
    if (model.classes() > 0) {
      style.says = predict::say(predict::classify(model, input.images(), context).front(),
                                model.info().labels);
    }
    page.add_image(paths[i]);
    for (const engine::LayerAttention& attention : maps) {
      const std::string file = stem + "." + attention.layer.name;
      write(file + ".png", predict::attention_sheet(image, name, attention, style), progress);
      if (!attention.kernels.attention.empty()) {
        write(file + ".kernels.png", predict::kernel_sheet(image, name, attention, style),
              progress);
      }
    }
  };
  const int64_t failed = for_each_image(paths, read, look_at, a.threads);
  if (failed < static_cast<int64_t>(paths.size())) {
    const std::string index = (fs::path(a.out) / "index.html").string();
    write_file(index, page.html());
    fmt::print("{}\n", index);
  }
  check_all_used(failed, paths);
}

void run_explore(const AttendArguments& a) {
  check(fs::path(a.out).extension() == ".html",
        "--out must be a file that ends in .html with --explore, got '{}'", a.out);
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  kinds::check_explorable(model);
  write_explorer(model, a.images, a.out, input_size(a.size, model),
                 {.layers = a.layers, .threshold = a.threshold}, a.threads);
}

}  // namespace

void add_attend(Command program) {
  Command verb = program.verb("attend", "Draw where a model looks in pictures");
  auto a = std::make_shared<AttendArguments>();
  add_pictures(verb, a->images, config::Kind::kClassifier);
  verb.option("-o,--out", a->out,
              "Folder for the pictures, made if need be; with --explore the page's file, .html")
      .required();
  Option explore = verb.flag(
      "--explore", a->explore,
      "Write one page to look around in, of one picture: every layer, head and query, the window\n"
      "under the pointer, the prediction; for detectors too");
  verb.option("--threshold", a->threshold,
              "With --explore: least score of a detector's boxes [0.5]")
      .range(0.0, 1.0)
      .needs(explore);
  // One value per use, or several with commas: what follows may be an image.
  verb.option("--layer", a->layers,
              "Layers such as 2.5 (stage.block from 0), 2.downsample, head [the last QnA\n"
              "block of every stage and the last self-attention block; with --explore all]")
      .one_value_each()
      .comma_separated();
  verb.option("--head", a->style.heads, "Heads, from 0 [all]")
      .one_value_each()
      .comma_separated()
      .range(0, 1 << 20)
      .excludes(explore);
  verb.option("--size", a->size,
              "Run with this shorter side at the picture's own aspect, or on the middle cut\n"
              "to HEIGHTxWIDTH [shorter side as the model was trained]");
  verb.option("--opacity", a->style.opacity, "Of the maps over the picture, 0 to 1 [0.6]")
      .range(0.0, 1.0)
      .excludes(explore);
  verb.option("--cell", a->style.cell, "Longer side of each picture on a sheet [320]")
      .range(32, 4096)
      .excludes(explore);
  verb.flag("--kernels,!--no-kernels", a->kernels, "Also draw the windows' kernels, tiled [yes]")
      .excludes(explore);
  verb.flag("--weighted", a->style.weighted,
            "Weights of the values, with the learned scale, instead of attention")
      .excludes(explore);
  verb.flag("--shared-scale", a->style.shared_scale,
            "One range of colours for all heads of a layer")
      .excludes(explore);
  add_engine_options(verb, a->threads, a->weight_type);
  verb.footer(
      "For every picture and layer a PNG sheet shows each head's attention, summed over the\n"
      "windows that see a place, and a second one the windows' kernels; index.html shows them\n"
      "all. The whole picture is used at its own aspect, without the crop kept in the weights\n"
      "file. A picture that cannot be read is reported and does not stop the rest; the exit\n"
      "status then is 1.\n\n"
      "Examples:\n"
      "  qna attend church.jpg -o church/\n"
      "  qna attend --explore church.jpg -o church.html\n"
      "  qna attend model.safetensors cat.jpg -o cat/\n"
      "  qna attend model.safetensors pictures/ -o maps/ --layer 1.2,2.5 --no-kernels\n"
      "  qna attend model.safetensors street.jpg -o street/ --size 768 --head 0,3 --cell 1024");
  verb.callback([a] {
    a->file = take_weights(a->images, config::Kind::kClassifier);
    a->explore ? run_explore(*a) : run_attend(*a);
  });
}

}  // namespace qna::cli
