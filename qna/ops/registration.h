// Registration of the operators with torch's dispatcher.
//
// Explicit, not by static initialisers: those are lost when a static library is linked. Every
// entry point calls register_operators(); call it yourself before using the operators by name.
#pragma once

#include <torch/library.h>

namespace qna::ops {

// Thread-safe; the first call registers, later calls do nothing. Throws qna::Error where another
// library has registered operators of these names.
void register_operators();

struct Libraries {
  torch::Library definitions;
  torch::Library cpu;
  torch::Library meta;
  torch::Library autograd_cpu;
  torch::Library autocast_cpu;
  torch::Library autocast_cuda;
};

// One per operator, in its own file.
void register_window_attention(Libraries& libraries);
void register_qna_layer(Libraries& libraries);
void register_sasa(Libraries& libraries);

}  // namespace qna::ops
