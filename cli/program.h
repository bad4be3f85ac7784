// What the programs qna, qna-train and qna-bench have in common.
#pragma once

#include <string>

namespace qna::cli {

// What a program calls itself in its messages: "qna train" where `qna` started it as its verb,
// otherwise the name of its file.
std::string program_name(const char* argv0);

// "qna-train 0.1.0, commit c45e985"
std::string version_text(const std::string& program);

// Becomes the program `file` beside this one, with the arguments from argv[2] on. Returns only,
// with the status of the process, where there is none.
int become_program(const char* file, int argc, char** argv);

}  // namespace qna::cli
