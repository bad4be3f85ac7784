#include "qna/nn/halo_attention.h"

#include <cmath>

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/query_projection.h"

namespace qna::nn {
namespace {
constexpr const char* kHaloAttentionName = "HaloAttention";
}

HaloAttentionImpl::HaloAttentionImpl(const HaloAttentionOptions& options)
    : options_(config::complete(options)) {
  HaloAttentionImpl::reset();
}

void HaloAttentionImpl::reset() {
  const auto& o = options_;
  qkv = register_module("qkv", linear_without_bias(o.in_features, 3 * o.out_features));
  proj = register_module("proj", linear_without_bias(o.out_features, o.out_features));
  relative_bias =
      register_parameter("relative_bias", torch::zeros({o.offsets(0), o.offsets(1), o.heads}));
  lecun_normal_(qkv->weight, o.in_features);
  lecun_normal_(proj->weight, o.out_features);
}

TileAttention HaloAttentionImpl::tiles() const {
  TileAttention tiles{.geometry = {}, .bias = relative_bias.permute({2, 0, 1}), .bias_center = {}};
  for (int axis = 0; axis < 2; ++axis) {
    tiles.geometry[axis] = {.block = options_.block[axis],
                            .halo = options_.halo()[axis],
                            .stride = options_.stride[axis]};
    // The smallest offset is from a block's last query to the halo's first key.
    tiles.bias_center[axis] = options_.block[axis] - options_.stride[axis] + options_.halo()[axis];
  }
  return tiles;
}

torch::Tensor HaloAttentionImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const auto& o = options_;
  check_map(x, o.in_features, mask, kHaloAttentionName);
  const int64_t dim = o.out_features / o.heads;
  const torch::Tensor map = zero_masked(x, mask);
  const torch::Tensor centers =
      map.slice(1, 0, std::nullopt, o.stride[0]).slice(2, 0, std::nullopt, o.stride[1]);
  const QueryKeyValue parts = project_queries_keys_values(map, centers, qkv->weight);
  const auto by_head = [&](const torch::Tensor& t) { return t.unflatten(3, {o.heads, dim}); };
  const torch::Tensor q = by_head(parts.query) / std::sqrt(static_cast<double>(dim));
  const torch::Tensor mixed =
      attend_tiles(q, by_head(parts.key), by_head(parts.value), mask, tiles());
  return proj->forward(mixed.flatten(3));
}

void HaloAttentionImpl::pretty_print(std::ostream& stream) const {
  const auto& o = options_;
  stream << "qna::nn::HaloAttention(" << o.in_features << " -> " << o.out_features
         << ", heads=" << o.heads << ", block=" << o.block[0] << "x" << o.block[1]
         << ", halo=" << o.halo()[0] << "x" << o.halo()[1] << ", stride=" << o.stride[0] << "x"
         << o.stride[1] << ")";
}

}  // namespace qna::nn
