#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/image_loop.h"
#include "cli/model_argument.h"
#include "cli/output_folder.h"
#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/data/image_stream.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/predict/reconstruct.h"

namespace qna::cli {
namespace {

struct ReconstructArguments {
  std::string file;
  std::string weight_type;
  std::vector<std::string> images;
  std::string out;
  int threads = 0;  // 0: one per core
};

void run_reconstruct(const ReconstructArguments& a) {
  const engine::Model model = engine::Model::open(a.file, model_options(a.weight_type));
  model.auto_encoder();  // or else it says what the file holds
  const config::Preprocess& preprocess = model.info().preprocess;
  const std::vector<std::string> paths = find_pictures(a.images);
  check_keeps_images(a.out, paths);
  make_output_folder(a.out);
  engine::Context context(a.threads);
  UniqueStems stems;
  const auto read = [&](const std::string& path) {
    return image::read_image(path, {.channels = preprocess.channels()});
  };
  const auto work = [&](size_t i, const image::Image& image, Progress& progress) {
    const predict::Reconstructed result = predict::reconstruct(model, image, preprocess, context);
    const std::string file =
        (std::filesystem::path(a.out) / (stems.of(paths[i]) + ".png")).string();
    image::write_png(file, result.side_by_side());
    progress.wipe();
    fmt::print("{}  L1 {:.4f}  PSNR {:.2f} dB  SSIM {:.4f}\n", file, result.l1, result.psnr,
               result.ssim);
    std::fflush(stdout);
  };
  check_all_used(for_each_image(paths, read, work, a.threads), paths);
}

}  // namespace

void add_reconstruct(Command program) {
  Command verb = program.verb("reconstruct", "Send pictures through an auto-encoder");
  auto a = std::make_shared<ReconstructArguments>();
  verb.option("file", a->file, "Weights of an auto-encoder (.safetensors)")
      .required()
      .type_name("FILE");
  verb.option("images", a->images, "Pictures, or folders of them (JPEG, PNG, WebP)")
      .required()
      .type_name("IMAGE");
  verb.option("-o,--out", a->out, "Folder for the pictures, made if need be").required();
  add_engine_options(verb, a->threads, a->weight_type);
  verb.footer(
      "Each PNG file shows the original, as the network saw it, and the reconstruction. A picture\n"
      "that cannot be read is reported and does not stop the rest; the exit status then is 1.\n\n"
      "Example:\n"
      "  qna reconstruct runs/faces_qna/best.safetensors faces/ -o again/");
  verb.callback([a] { run_reconstruct(*a); });
}

}  // namespace qna::cli
