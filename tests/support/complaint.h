// What a call complains of.
#pragma once

#include <functional>
#include <string>

#include "qna/base/error.h"

namespace qna::testing {

// What the qna::Error says that `call` throws; empty if it throws none.
inline std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace qna::testing
