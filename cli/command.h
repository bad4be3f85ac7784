// The command line in a few plain types. CLI11 does the work behind them; only command.cc compiles
// its templates, which take seconds in every file that sees them.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qna::cli {

// An option, flag or positional argument of a command, to say more of it: its functions can be
// chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& type_name(const std::string& name);  // FILE, in place of TEXT
  Option& range(int least, int most);
  Option& range(int64_t least, int64_t most);
  Option& range(double least, double most);
  Option& one_of(const std::vector<std::string>& values);
  Option& existing_file();
  Option& existing_folder();
  Option& comma_separated();            // for lists: a,b,c
  Option& values(int least, int most);  // for lists: how many
  Option& one_value_each();             // for lists: the option is given again for the next value
  Option& excludes(Option other);
  Option& needs(Option other);
  Option& group(const std::string& title);  // where --help lists it
  bool given() const;                       // in the command line, once it is read

 private:
  CLI::Option* option_;
};

// A word that may stand behind a command, and what it is for.
struct CommandWord {
  std::string command;  // "qna data preview"
  std::string word;     // "--out", or a verb
  std::string help;     // one line
};

// The only argument of a program that is asked to print its words, a line each:
// command, tab, word, tab, help.
inline constexpr const char* kWordsFlag = "--print-words";

// A program or one of its verbs.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command verb(const std::string& name, const std::string& summary);
  Command hidden_verb(const std::string& name);  // not listed in --help
  void require_verb();

  // name: "images" (positional), "--json", "-o,--out" or, for flags, "--kernels,!--no-kernels". The
  // value is written when the command line is read and must live as long as the program.
  Option option(const std::string& name, std::string& value, const std::string& help = "");
  Option option(const std::string& name, int& value, const std::string& help = "");
  Option option(const std::string& name, int64_t& value, const std::string& help = "");
  Option option(const std::string& name, float& value, const std::string& help = "");
  Option option(const std::string& name, double& value, const std::string& help = "");
  Option option(const std::string& name, std::vector<std::string>& value,
                const std::string& help = "");
  Option option(const std::string& name, std::vector<int>& value, const std::string& help = "");
  Option option(const std::string& name, std::vector<int64_t>& value, const std::string& help = "");
  Option flag(const std::string& name, bool& value, const std::string& help = "");

  void footer(const std::string& text);  // below the options in --help: remarks, examples
  void callback(std::function<void()> work);

  // Verbs and options, with those of all verbs; for shells.
  std::vector<CommandWord> words() const;

 private:
  CLI::App* app_;
};

// The command a process was started with.
class Program {
 public:
  Program(const std::string& name, const std::string& summary);
  ~Program();

  Command command();
  void version(std::function<std::string()> text);  // what --version prints

  // Reads the command line and does the work. Errors go to stderr; returns the status of the
  // process: 2 where the command is wrong, 1 where the work failed. describe: what an exception
  // says to people; none: its what().
  int run(int argc, char** argv, std::string (*describe)(const std::exception&) = nullptr);

  // The same for tests: what the work throws comes through; false where the command is wrong.
  bool run(const std::vector<std::string>& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace qna::cli
