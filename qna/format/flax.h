// Checkpoints of flax (flax.serialization): one msgpack map of maps, such as a train state
// {step, params, opt_state, ...}, whose leaves are arrays. A file may come from anywhere, so all
// its numbers are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "qna/format/dtype.h"

namespace qna::format {

// Elements in row-major order.
struct FlaxArray {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// From dotted path, "params.QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk", to array. Numbers are arrays of
// shape []: flax itself writes `step` now as a number, now as an array. None and empty maps hold
// nothing, so they are not there.
using FlaxState = std::map<std::string, FlaxArray>;

// Throws qna::Error when the file cannot be read or is not such a checkpoint.
FlaxState read_flax(const std::string& path);

// The same for bytes at hand; `origin` stands for the path in messages.
FlaxState parse_flax(std::span<const std::byte> bytes, const std::string& origin);

}  // namespace qna::format
