// The blocks of a stage, as its configuration wants them.
#pragma once

#include "qna/config/qna_vit.h"

namespace qna::config {

BlockOptions attention_block(const QnAViTConfig& config, size_t stage, double drop_path);

// number: of the local blocks, from 0; windows are shifted in every second one.
BlockOptions local_block(const QnAViTConfig& config, size_t stage, int64_t number,
                         double drop_path);

// For all ways of down-sampling that are blocks.
BlockOptions downsampling_block(const QnAViTConfig& config, size_t stage, double drop_path);

// The head's QnA layer: one window over the whole map of the trained size.
QnAOptions head_qna(const QnAViTConfig& config);

}  // namespace qna::config
