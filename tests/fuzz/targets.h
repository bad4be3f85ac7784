// The readers of files from outside, each as a function of the file's bytes.
#pragma once

#include <span>
#include <string>

namespace qna::fuzz {

struct Target {
  const char* name;    // also the folder of its seeds
  const char* reader;  // what it reads
  // May throw qna::Error, nothing else.
  void (*read)(const std::string& bytes);
  int share;  // in a thousand of all runs
};

std::span<const Target> targets();

}  // namespace qna::fuzz
