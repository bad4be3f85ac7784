#include "qna/ops/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "qna/base/error.h"

namespace qna::ops {
namespace {

torch::Library implementations_for(c10::DispatchKey key) {
  return torch::Library(torch::Library::IMPL, "qna", key, __FILE__, __LINE__);
}

void check_alone() {
  check(!c10::Dispatcher::singleton().findSchema({"qna::qna_layer", ""}).has_value(),
        "the operators qna::* are there already, registered by another library in this process "
        "(the Python package qna, or a second copy of this one); only one of them can be used");
}

}  // namespace

void register_operators() {
  // Lives as long as the process: the dispatcher keeps what a Library registered while it lives.
  static Libraries* const libraries = [] {
    check_alone();
    auto* list =
        new Libraries{torch::Library(torch::Library::DEF, "qna", std::nullopt, __FILE__, __LINE__),
                      implementations_for(c10::DispatchKey::CPU),
                      implementations_for(c10::DispatchKey::Meta),
                      implementations_for(c10::DispatchKey::AutogradCPU),
                      implementations_for(c10::DispatchKey::AutocastCPU),
                      implementations_for(c10::DispatchKey::AutocastCUDA)};
    register_window_attention(*list);
    register_qna_layer(*list);
    register_sasa(*list);
    return list;
  }();
  (void)libraries;
}

}  // namespace qna::ops
