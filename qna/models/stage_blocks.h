// The blocks of a stage, as its configuration wants them.
#pragma once

#include "qna/models/config.h"
#include "qna/nn/block.h"

namespace qna::models {

nn::BlockOptions attention_block(const QnAViTConfig& config, size_t stage, double drop_path);

// number: of the local blocks, from 0; windows are shifted in every second one.
nn::BlockOptions local_block(const QnAViTConfig& config, size_t stage, int64_t number,
                             double drop_path);

// For all ways of down-sampling that are blocks.
nn::BlockOptions downsampling_block(const QnAViTConfig& config, size_t stage, double drop_path);

}  // namespace qna::models
