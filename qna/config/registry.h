// The named models: an explicit list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "qna/config/qna_vit.h"

namespace qna::config {

struct ModelEntry {
  const char* name;
  const char* summary;
  QnAViTConfig config;
  int64_t parameters;  // exact
  double gflops;       // 2 x multiply-adds and element-wise work, at config.image_size (cost.h)
  double paper_top1;   // percent on ImageNet-1K; 0: not in the paper
  double paper_per_second;  // images, on one V100; 0: not in the paper
  const char* recipe;       // file in recipes/ that trains it
};

std::span<const ModelEntry> models();

// Throws qna::Error that lists the names if there is none of that name.
const ModelEntry& find_model(std::string_view name);

}  // namespace qna::config
