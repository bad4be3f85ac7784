#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/program.h"
#include "cli/verbs.h"
#include "qna/base/error.h"

namespace qna::cli {
namespace {

// The words of each command, by its full name: "qna", "qna data preview".
using Words = std::map<std::string, std::vector<CommandWord>>;

// What `qna-train` and the others print of theirs; nothing where one is not installed.
void add_other(Words& words, const std::string& verb, const std::string& file) {
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::filesystem::path program = self.parent_path() / file;
  if (!std::filesystem::exists(program, none)) return;
  const std::string command = fmt::format("'{}' {}", program.string(), kWordsFlag);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  check(pipe != nullptr, "cannot start {}", program.string());
  words.erase("qna " + verb);  // a verb without options here
  std::array<char, 4096> line;
  while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string text = line.data();
    if (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t first = text.find('\t'), second = text.find('\t', first + 1);
    if (second == std::string::npos) continue;
    // The program's own name stands for the verb's.
    const std::string inner = text.substr(0, first);
    const size_t space = inner.find(' ');
    const std::string name =
        "qna " + verb + (space == std::string::npos ? "" : inner.substr(space));
    words[name].push_back(
        {name, text.substr(first + 1, second - first - 1), text.substr(second + 1)});
  }
}

std::string join_words(const std::vector<CommandWord>& words) {
  std::string text;
  for (const CommandWord& word : words) text += (text.empty() ? "" : " ") + word.word;
  return text;
}

void print_bash(const Words& words) {
  fmt::print(
      "# Completion of qna for bash, by 'qna completion bash'.\n"
      "_qna_words() {{\n  case $1 in\n");
  for (const auto& [name, list] : words) {
    fmt::print("    \"{}\") echo \"{}\" ;;\n", name, join_words(list));
  }
  fmt::print("{}",
             R"(  esac
}
_qna() {
  local word=${COMP_WORDS[COMP_CWORD]} name=qna words i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ -n $(_qna_words "$name ${COMP_WORDS[i]}") ]]; then name="$name ${COMP_WORDS[i]}"; fi
  done
  words=$(_qna_words "$name")
  COMPREPLY=()
  # Verbs where there are some, options where one begins, else files.
  if [[ $word == -* || $words != -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}
complete -o default -F _qna qna
)");
}

// For a word between single quotes of _describe, where a colon divides.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == ':' || c == '\\') {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

void print_zsh(const Words& words) {
  fmt::print(
      "#compdef qna\n# Completion of qna for zsh, by 'qna completion zsh'.\n"
      "_qna_words() {{\n  case $1 in\n");
  for (const auto& [name, list] : words) {
    fmt::print("    \"{}\") found=(\n", name);
    for (const CommandWord& word : list) {
      fmt::print("      '{}:{}'\n", zsh_text(word.word), zsh_text(word.help));
    }
    fmt::print("    ) ;;\n");
  }
  fmt::print("{}",
             R"(    *) found=() ;;
  esac
}
_qna() {
  local name=qna word
  local -a found
  for word in ${words[2,CURRENT-1]}; do
    _qna_words "$name $word"
    if (( ${#found} )); then name="$name $word"; fi
  done
  _qna_words "$name"
  # Verbs where there are some, options where one begins, else files.
  if [[ $PREFIX == -* || $found[1] != -* ]]; then
    _describe -o 'qna' found
  else
    _files
  fi
}
if [[ $funcstack[1] == _qna ]]; then _qna "$@"; else compdef _qna qna; fi
)");
}

}  // namespace

void add_completion(Command program) {
  Command verb = program.verb("completion", "Print what a shell needs to complete qna's words");
  auto shell = std::make_shared<std::string>();
  verb.option("shell", *shell, "bash or zsh").required().one_of({"bash", "zsh"}).type_name("SHELL");
  verb.footer(
      "Installed with the program where the shells look for it. By hand:\n"
      "  source <(qna completion bash)\n"
      "  qna completion zsh > ~/.zfunc/_qna      # a folder of $fpath");
  verb.callback([program, shell] {
    Words words;
    for (const CommandWord& word : program.words()) words[word.command].push_back(word);
    add_other(words, "finetune", "qna-finetune");
    add_other(words, "train", "qna-train");
    add_other(words, "bench", "qna-bench");
    (*shell == "bash" ? print_bash : print_zsh)(words);
  });
}

}  // namespace qna::cli
