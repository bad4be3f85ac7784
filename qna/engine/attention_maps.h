// Where a layer looks: its attention weights, which serving never forms. visitor.h says what the
// maps mean. Memory grows with the map, not with the map times the window.
#pragma once

#include "qna/engine/block.h"
#include "qna/engine/visitor.h"

namespace qna::engine {

// block: one with a QnA layer or self-attention in windows that are not shifted; x: its input;
// visitor: says what is wanted beside the maps.
LayerAttention attention_of(const AttentionLayer& layer, const Block& block, const Map& x,
                            Visitor& visitor, Worker& worker);

// Of a head whose only window is the map; x: its input before the norm.
LayerAttention head_attention_of(const AttentionLayer& layer, const ScoreTables& tables,
                                 const Map& x, Visitor& visitor, Worker& worker);

}  // namespace qna::engine
