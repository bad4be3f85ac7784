// 'qna attend' on a small model with random weights: which files it writes, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/verbs.h"
#include "qna/base/error.h"
#include "qna/config/registry.h"
#include "qna/image/read.h"
#include "qna/image/write_png.h"
#include "qna/report/explorer.h"
#include "qna/report/explorer_testonly.h"
#include "tests/support/random_model.h"

namespace qna::cli {
namespace {

namespace fs = std::filesystem;

class Attend : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qna_attend_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    config::QnAViTConfig config = config::find_model("qna_vit_pico").config;
    config.classes = 5;
    std::ofstream(path("model.safetensors"), std::ios::binary)
        << testing::random_model_bytes(config, {.preprocess = {.resize = 36, .crop = {32, 32}}});
    save_image("cat.png", 40, 56);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save_image(const std::string& name, int64_t height, int64_t width) {
    image::Image image = image::make_image(height, width, 3);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      image.pixels[i] = static_cast<uint8_t>(i * i >> 5);
    }
    image::write_png(path(name), image);
  }

  // Runs the verb with the model and the folder out/. False where the command is wrong.
  [[nodiscard]] bool attend(std::vector<std::string> arguments) {
    std::vector<std::string> line = {"attend", path("model.safetensors"), "-o", path("out/deep")};
    line.insert(line.end(), arguments.begin(), arguments.end());
    Program program("qna", "");
    add_attend(program.command());
    return program.run(line);
  }

  std::vector<std::string> written() const {
    std::vector<std::string> names;
    if (!fs::exists(folder_ / "out/deep")) return names;
    for (const auto& entry : fs::directory_iterator(folder_ / "out/deep")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string page() const {
    std::ifstream file(folder_ / "out/deep/index.html");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  image::Image sheet(const std::string& name) const {
    return image::read_image(path("out/deep/" + name));
  }

  // What the qna::Error says.
  std::string complaint(std::vector<std::string> arguments) {
    try {
      EXPECT_FALSE(attend(std::move(arguments)));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(Attend, TypicalLayers) {
  ASSERT_TRUE(attend({path("cat.png")}));
  EXPECT_EQ(written(), (std::vector<std::string>{
                           "cat.stages.0.blocks.0.kernels.png", "cat.stages.0.blocks.0.png",
                           "cat.stages.1.blocks.0.kernels.png", "cat.stages.1.blocks.0.png",
                           "cat.stages.2.blocks.1.kernels.png", "cat.stages.2.blocks.1.png",
                           "cat.stages.3.blocks.0.png", "index.html"}));
  for (const std::string& name : written()) {
    if (name.ends_with(".png")) {
      EXPECT_NE(page().find("src=\"" + name + "\""), std::string::npos) << name;
    }
  }
}

TEST_F(Attend, ChosenLayersHeadsAndSizes) {
  // Options that take lists do not swallow the images behind them.
  ASSERT_TRUE(attend({"--no-kernels", "--layer", "0.0,1.downsample", "--head", "1", path("cat.png"),
                      "--size", "33x47", "--cell", "100", "--weighted", "--shared-scale"}));
  EXPECT_EQ(written(), (std::vector<std::string>{"cat.stages.0.blocks.0.png",
                                                 "cat.stages.1.downsample.png", "index.html"}));
  // Image, mean and one head, each 70 x 100: 33 x 47 at 100 pixels.
  const image::Image image = sheet("cat.stages.0.blocks.0.png");
  EXPECT_EQ((image.width - 12) % 112, 0);
}

TEST_F(Attend, ShorterSideKeepsTheAspect) {
  ASSERT_TRUE(
      attend({path("cat.png"), "--layer", "0.0", "--size", "80", "--cell", "280", "--head", "0"}));
  // 80 x 112 on a sheet whose places are 280 wide.
  const image::Image image = sheet("cat.stages.0.blocks.0.png");
  EXPECT_EQ((image.width - 12) % 292, 0);
  // Four lines above: name, prediction, what is shown and what 1 means.
  EXPECT_EQ((image.height - 12 - (4 * 13 + 12)) % (15 + 200 + 25 + 12), 0);
}

TEST_F(Attend, ImagesOfOneNameAreKeptApart) {
  fs::create_directory(folder_ / "b");
  save_image("b/cat.png", 64, 32);
  save_image("b/50% <cat> #1.png", 32, 32);
  ASSERT_TRUE(attend({path("cat.png"), path("b"), "--layer", "0.0", "--no-kernels"}));
  EXPECT_EQ(written(), (std::vector<std::string>{"50% <cat> #1.stages.0.blocks.0.png",
                                                 "cat-2.stages.0.blocks.0.png",
                                                 "cat.stages.0.blocks.0.png", "index.html"}));
  EXPECT_NE(page().find("src=\"50%25%20%3Ccat%3E%20%231.stages.0.blocks.0.png\""),
            std::string::npos);
  EXPECT_EQ(page().find("<cat>"), std::string::npos);
}

TEST_F(Attend, ABrokenImageDoesNotStopTheRest) {
  std::ofstream(path("broken.png")) << "\x89PNG\r\n\x1a\nno more";
  const std::string said =
      complaint({path("broken.png"), path("cat.png"), "--layer", "0.0", "--no-kernels"});
  EXPECT_NE(said.find("1 of 2 pictures"), std::string::npos) << said;
  EXPECT_EQ(written(), (std::vector<std::string>{"cat.stages.0.blocks.0.png", "index.html"}));
}

TEST_F(Attend, AnyShape) {
  save_image("dot.png", 1, 1);
  save_image("line.png", 1, 40);
  ASSERT_TRUE(attend({path("dot.png"), path("line.png"), "--size", "3"}));
  EXPECT_EQ(written().size(), 2 * 7 + 1);
}

class Explore : public Attend {
 protected:
  [[nodiscard]] bool explore(const std::string& model, std::vector<std::string> arguments) {
    std::vector<std::string> line = {"attend", "--explore", path(model)};
    line.insert(line.end(), arguments.begin(), arguments.end());
    Program program("qna", "");
    add_attend(program.command());
    return program.run(line);
  }
  std::string refusal(const std::string& model, std::vector<std::string> arguments) {
    try {
      EXPECT_FALSE(explore(model, std::move(arguments)));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  nlohmann::json data() const {
    std::ifstream file(path("page.html"));
    return report::explorer_data({std::istreambuf_iterator<char>(file), {}});
  }
};

TEST_F(Explore, OnePage) {
  ASSERT_TRUE(explore("model.safetensors", {path("cat.png"), "-o", path("page.html")}));
  EXPECT_EQ(data()["seen"], nlohmann::json({32, 44}));  // as trained, at the picture's aspect
  EXPECT_EQ(data()["classes"].size(), 5u);
  EXPECT_LE(fs::file_size(path("page.html")), report::kExplorerBytes);
}

TEST_F(Explore, LayersAndSizes) {
  ASSERT_TRUE(explore("model.safetensors", {path("cat.png"), "-o", path("page.html"), "--layer",
                                            "0.0,1.downsample", "--size", "33x47"}));
  EXPECT_EQ(data()["seen"], nlohmann::json({33, 47}));
  ASSERT_EQ(data()["layers"].size(), 2u);
  EXPECT_EQ(data()["layers"][1]["name"], "stages.1.downsample");
}

TEST_F(Explore, LargePicturesAreShrunkAndSaidToBe) {
  save_image("large.png", 900, 1200);
  ASSERT_TRUE(
      explore("model.safetensors", {path("large.png"), "-o", path("page.html"), "--size", "32"}));
  EXPECT_NE(data()["notes"].dump().find("900 x 1200"), std::string::npos);
}

TEST_F(Explore, Mistakes) {
  const std::vector<std::string> out = {"-o", path("page.html")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), out.begin(), out.end());
    return more;
  };
  save_image("dog.png", 8, 8);
  EXPECT_NE(refusal("model.safetensors", with({path("cat.png"), path("dog.png")})).find("got 2"),
            std::string::npos);
  EXPECT_NE(refusal("model.safetensors", {path("cat.png"), "-o", path("page")}).find(".html"),
            std::string::npos);
  EXPECT_NE(refusal("model.safetensors", with({path("cat.png"), "--layer", "7.7"})).find("'7.7'"),
            std::string::npos);
  EXPECT_FALSE(explore("model.safetensors", with({path("cat.png"), "--cell", "64"})));
  EXPECT_FALSE(attend({path("cat.png"), "--threshold", "0.5"}));
  std::ofstream(path("ae.safetensors"), std::ios::binary)
      << testing::random_model_bytes(testing::small_auto_encoder(), {});
  EXPECT_NE(refusal("ae.safetensors", with({path("cat.png")})).find("auto-encoder"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(path("page.html")));
}

TEST_F(Attend, Mistakes) {
  EXPECT_NE(complaint({path("cat.png"), "--layer", "7.7"}).find("'7.7'"), std::string::npos);
  EXPECT_NE(complaint({path("cat.png"), "--layer", "0.0", "--head", "2"}).find("heads 0 to 1"),
            std::string::npos);
  EXPECT_NE(complaint({path("cat.png"), "--size", "0x3"}).find("--size"), std::string::npos);
  EXPECT_NE(complaint({path("none.png")}).find("none.png"), std::string::npos);
  EXPECT_FALSE(attend({path("cat.png"), "--opacity", "2"}));
  EXPECT_THROW((void)attend({}), Error);
  EXPECT_TRUE(written().empty());
  std::ofstream(path("out")) << "a file where the folder should be";
  EXPECT_NE(complaint({path("cat.png")}).find("--out"), std::string::npos);
}

}  // namespace
}  // namespace qna::cli
