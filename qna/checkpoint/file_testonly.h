// What the tests of files on disk share: a folder that vanishes, and files with parts changed.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "qna/checkpoint/model_file.h"
#include "qna/checkpoint/tensor_bytes.h"
#include "qna/format/safetensors.h"

namespace qna::checkpoint::testing {

inline std::string bytes_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class FileTest : public ::testing::Test {
 protected:
  using Metadata = std::map<std::string, std::string>;
  using Tensors = std::map<std::string, torch::Tensor>;

  FileTest() : folder_(::testing::TempDir() + "qna_checkpoint_test_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name = "model.safetensors") const {
    return folder_ + "/" + name;
  }

  std::string write(const std::string& name, const Tensors& tensors, const Metadata& metadata) {
    std::vector<format::TensorView> views;
    for (const auto& [key, tensor] : tensors) views.push_back(view_of(key, tensor));
    format::write_safetensors(path(name), views, metadata);
    return path(name);
  }

  // The file of `path()` again, with its parts changed.
  template <typename Change>
  std::string changed(const Change& change) {
    const format::SafetensorsFile file(path());
    Metadata metadata = file.metadata();
    Tensors tensors;
    for (const auto& view : file.tensors()) tensors[view.name] = tensor_from(view, "test");
    change(metadata, tensors);
    return write("changed.safetensors", tensors, metadata);
  }

 private:
  std::string folder_;
};

inline void expect_same_tensors(const torch::nn::Module& got, const torch::nn::Module& expected) {
  const auto a = named_tensors(got);
  const auto b = named_tensors(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  }
}

// Other values than the initial ones, so that every tensor matters.
inline void randomize(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model.parameters()) parameter.normal_();
  for (torch::Tensor& buffer : model.buffers()) {
    if (buffer.is_floating_point()) buffer.uniform_(0.5, 2);
  }
}

}  // namespace qna::checkpoint::testing
