// Where in a body, a network of stages, a parameter lies.
#pragma once

#include <cstdint>
#include <string>

namespace qna::tasks {

// 1 in the last of the `stages`, one more in each before it, and stages + 1 in the stem. By the
// names of a QnA-ViT ("stages.0.") or of a ResNet ("layer1.").
int64_t depth_in_body(const std::string& parameter, int64_t stages);

}  // namespace qna::tasks
