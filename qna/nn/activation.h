// Activations by name.
#pragma once

#include "qna/ops/activation.h"

namespace qna::nn {

using ops::activate;

}  // namespace qna::nn
