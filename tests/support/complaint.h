// What a call complains of.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "qna/base/error.h"

namespace qna::testing {

// What the qna::Error says that `call` throws; empty if it throws none. Anything else that it
// throws fails the test.
inline std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a qna::Error: " << error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void expect_complaint(const std::function<void()>& call,
                             std::initializer_list<const char*> words) {
  const std::string said = complaint(call);
  EXPECT_NE(said, "") << "no complaint with " << *words.begin();
  for (const char* word : words) {
    EXPECT_TRUE(contains(said, word)) << "no '" << word << "' in: " << said;
  }
}

}  // namespace qna::testing
