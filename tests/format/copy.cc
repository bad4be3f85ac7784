// Reads a safetensors file and writes it again, for python_test.py beside it.
#include <cstdio>

#include "qna/base/error.h"
#include "qna/format/safetensors.h"

int main(int count, char** arguments) try {
  qna::check(count == 3, "usage: format_copy <from> <to>");
  const qna::format::SafetensorsFile file(arguments[1]);
  qna::format::write_safetensors(arguments[2], file.tensors(), file.metadata());
  return 0;
} catch (const qna::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
