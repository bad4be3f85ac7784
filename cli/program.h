// What the programs qna, qna-train and qna-bench have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

namespace qna::cli {

// What a program calls itself in its messages: "qna train" where `qna` started it as its verb,
// otherwise the name of its file.
std::string program_name(const char* argv0);

// "qna-train 0.1.0, commit c45e985"
std::string version_text(const std::string& program);

// Parses and runs. Errors go to stderr; returns the status of the process: 2 where the command is
// wrong, 1 where the work failed. describe: what an exception says to people; none: its what().
int run_program(CLI::App& app, int argc, char** argv,
                std::string (*describe)(const std::exception&) = nullptr);

// Becomes the program `file` beside this one, with the arguments from argv[2] on. Returns only,
// with the status of the process, where there is none.
int become_program(const char* file, int argc, char** argv);

}  // namespace qna::cli
