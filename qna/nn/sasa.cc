#include "qna/nn/sasa.h"

#include <cmath>

#include "qna/base/error.h"
#include "qna/nn/init.h"
#include "qna/nn/mask.h"
#include "qna/nn/query_projection.h"

namespace qna::nn {
namespace {

constexpr const char* kSasaName = "Sasa";

// Rows [groups, a, b] of a weight as [groups, b, a].
torch::Tensor swap_rows(const torch::Tensor& weight, int64_t groups, int64_t a, int64_t b) {
  return weight.view({groups, a, b, weight.size(1)}).transpose(1, 2).reshape(weight.sizes());
}

}  // namespace

SasaImpl::SasaImpl(const SasaOptions& options)
    : options_(config::complete(options)),
      geometry_{options_.kernel_size, options_.stride, *options_.padding, options_.dilation} {
  SasaImpl::reset();
}

void SasaImpl::reset() {
  const SasaOptions& o = options_;
  qkv = register_module("qkv", linear_without_bias(o.in_features, 3 * o.out_features));
  proj = register_module("proj", linear_without_bias(o.out_features, o.out_features));
  lecun_normal_(qkv->weight, o.in_features);
  lecun_normal_(proj->weight, o.out_features);
  relative_bias = register_parameter(
      "relative_bias",
      o.relative_bias ? torch::zeros({o.kernel_size[0], o.kernel_size[1], o.heads})
                      : torch::Tensor(),
      o.relative_bias);
}

// The pixels in the middle of the windows: a view.
torch::Tensor SasaImpl::window_centers(const torch::Tensor& x) const {
  torch::Tensor centers = x;
  const auto half = same_padding(options_.kernel_size, options_.dilation);
  for (int axis = 0; axis < 2; ++axis) {
    const auto& padding = *options_.padding;
    const int64_t before = half[2 * axis] - padding[2 * axis];
    const int64_t behind = half[2 * axis + 1] - padding[2 * axis + 1];
    const int64_t end = x.size(1 + axis) - behind;
    check(before < end, "{}: the window must fit into the padded map, got x of {}", kSasaName,
          in_brackets(x.sizes()));
    centers = centers.slice(1 + axis, before, end, options_.stride[axis]);
  }
  return centers;
}

torch::Tensor SasaImpl::forward(const torch::Tensor& x, const torch::Tensor& mask) {
  const SasaOptions& o = options_;
  check_map(x, o.in_features, mask, kSasaName);
  const torch::Tensor map = zero_masked(x, mask);
  const torch::Tensor centers = window_centers(map);
  const int64_t dim = o.out_features / o.heads;
  // The kernels want the heads side by side in memory, [dim, heads]. Turning the weights is less
  // work than turning the maps.
  const bool turned = o.method == SasaMethod::kFused;
  const auto by_head = [&](const torch::Tensor& t) {
    return turned ? t.unflatten(3, {dim, o.heads}).transpose(3, 4) : t.unflatten(3, {o.heads, dim});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const torch::Tensor weight =
      torch::cat({qkv->weight.narrow(0, 0, o.out_features) * scale,
                  qkv->weight.narrow(0, o.out_features, 2 * o.out_features)});
  const QueryKeyValue parts = project_queries_keys_values(
      map, centers, turned ? swap_rows(weight, 3, o.heads, dim) : weight);
  const auto attend = turned ? &ops::sasa : &ops::sasa_composite;
  const torch::Tensor mixed =
      attend(by_head(parts.query), by_head(parts.key), by_head(parts.value),
             relative_bias.defined() ? std::make_optional(relative_bias) : std::nullopt,
             mask.defined() ? std::make_optional(mask) : std::nullopt, geometry_);
  if (!turned) return proj->forward(mixed.flatten(3));
  return torch::linear(mixed.transpose(3, 4).flatten(3),
                       swap_rows(proj->weight.t(), 1, o.heads, dim).t());
}

void SasaImpl::pretty_print(std::ostream& stream) const {
  const SasaOptions& o = options_;
  stream << "qna::nn::Sasa(" << o.in_features << " -> " << o.out_features << ", heads=" << o.heads
         << ", kernel_size=" << o.kernel_size[0] << "x" << o.kernel_size[1]
         << ", stride=" << o.stride[0] << "x" << o.stride[1] << ")";
}

}  // namespace qna::nn
