// Which verbs are for which kind of network.
#pragma once

#include <exception>
#include <string>

#include "qna/config/network.h"

namespace qna::cli {

struct KindVerbs {
  config::Kind kind;
  const char* reader;       // the verb for such a file: "qna predict"
  const char* examples[2];  // what to do with a trained file; {}: the file
};
const KindVerbs& verbs_of(config::Kind kind);

// What an exception says to people: where a file is of another kind than the verb wants, also which
// verb is for it.
std::string describe_error(const std::exception& error);

}  // namespace qna::cli
