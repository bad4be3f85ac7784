// Activation checkpointing: memory for time. What a piece of a network computes in between is not
// kept for the backward pass but computed again there.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace qna::nn {

// y = run(x), with gradients to x and to `parameters`, which must be all that run uses. Random
// numbers that run draws on the CPU are the same both times.
torch::Tensor recompute(const std::function<torch::Tensor(const torch::Tensor&)>& run,
                        const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

}  // namespace qna::nn
