// The networks of the paper's tables, row by row, with the figures it prints.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "qna/config/qna_vit.h"

namespace qna::config {

struct Ablation {
  const char* table;  // the paper's
  std::string row;    // "SA [0,0,4,2], QnA [4,4,3,0]"
  QnAViTConfig config;
  // As printed; 0: not said. The paper counts multiply-adds as FLOPs.
  double paper_parameters = 0;  // in millions
  double paper_gmacs = 0;
  double paper_top1 = 0;  // percent on ImageNet-1K
  // How far ours may be from that.
  double parameters_within = 0;
  double gmacs_within = 0;
};

// The blocks are counted as the paper counts them: with the block that down-samples.
std::span<const Ablation> ablations();

// What is to be known about a table: where the paper contradicts itself, above all. "": nothing.
std::string ablation_note(std::string_view table);

}  // namespace qna::config
