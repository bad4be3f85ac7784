#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "qna/base/text.h"

namespace qna::cli {
namespace {

// The verb that the command line names, as far as it is known.
CLI::App* innermost(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

std::vector<std::string> verbs_of(CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::App* verb :
       app->get_subcommands([](CLI::App* a) { return !a->get_group().empty(); }))
    names.push_back(verb->get_name());
  return names;
}

// "--out", "-o" ...
std::vector<std::string> options_of(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "qna data preview"
std::string full_name(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  return parent == nullptr ? app->get_name() : full_name(parent) + " " + app->get_name();
}

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\t' ? ' ' : c;
  return text;
}

void add_words(CLI::App* app, std::vector<CommandWord>& words) {
  const std::string name = full_name(app);
  const auto verbs = app->get_subcommands([](CLI::App* a) { return !a->get_group().empty(); });
  for (const CLI::App* verb : verbs) {
    words.push_back({name, verb->get_name(), one_line(verb->get_description())});
  }
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      words.push_back({name, "--" + long_name, one_line(option->get_description())});
    }
  }
  for (CLI::App* verb : verbs) add_words(verb, words);
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::range(int least, int most) {
  return range(static_cast<int64_t>(least), static_cast<int64_t>(most));
}
Option& Option::range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option& Option::range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}
Option& Option::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}
Option& Option::existing_folder() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}
Option& Option::comma_separated() {
  option_->delimiter(',');
  return *this;
}
Option& Option::values(int least, int most) {
  option_->expected(least, most);
  return *this;
}
Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}
Option& Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}
Option& Option::needs(Option other) {
  option_->needs(other.option_);
  return *this;
}
Option& Option::group(const std::string& title) {
  option_->group(title);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Command Command::verb(const std::string& name, const std::string& summary) {
  return Command(app_->add_subcommand(name, summary));
}
Command Command::hidden_verb(const std::string& name) {
  CLI::App* verb = app_->add_subcommand(name);
  verb->group("");
  return Command(verb);
}
void Command::require_verb() { app_->require_subcommand(1); }

Option Command::option(const std::string& name, std::string& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, int& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, int64_t& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, float& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, double& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::vector<std::string>& value,
                       const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::vector<int>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::vector<int64_t>& value,
                       const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

std::vector<CommandWord> Command::words() const {
  std::vector<CommandWord> words;
  add_words(app_, words);
  return words;
}

void Command::footer(const std::string& text) { app_->footer(text); }
void Command::callback(std::function<void()> work) { app_->callback(std::move(work)); }

Program::Program(const std::string& name, const std::string& summary)
    : app_(std::make_unique<CLI::App>(summary, name)) {
  app_->failure_message(CLI::FailureMessage::simple);
}
Program::~Program() = default;

Command Program::command() { return Command(app_.get()); }

void Program::version(std::function<std::string()> text) {
  app_->set_version_flag("--version", std::move(text));
}

int Program::run(int argc, char** argv, std::string (*describe)(const std::exception&)) {
  const std::string name = app_->get_name();
  const std::string speaker = name.substr(0, name.find(' '));  // "qna" for "qna train" too
  if (argc == 2 && std::string_view(argv[1]) == kWordsFlag) {
    for (const CommandWord& word : command().words()) {
      fmt::print("{}\t{}\t{}\n", word.command, word.word, word.help);
    }
    return 0;
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 asks for a verb before it looks at what stands in its place.
    const std::vector<std::string> unknown = app_->remaining(/*recurse=*/true);
    CLI::App* const known = innermost(app_.get());
    const std::vector<std::string> verbs = verbs_of(known);
    if (unknown.empty() || verbs.empty()) return app_->exit(error) == 0 ? 0 : 2;
    const std::string meant = did_you_mean(unknown.front(), verbs);
    fmt::print(stderr, "{}: unknown verb '{}'{} {} '{} --help' for a list\n", speaker,
               unknown.front(), meant.empty() ? ";" : meant, meant.empty() ? "run" : "Run",
               full_name(known));
    return 2;
  } catch (const CLI::ExtrasError& error) {
    const std::vector<std::string> unknown = app_->remaining(/*recurse=*/true);
    const CLI::App* const known = innermost(app_.get());
    if (unknown.empty() || !unknown.front().starts_with("-")) {
      return app_->exit(error) == 0 ? 0 : 2;
    }
    const std::string option = unknown.front().substr(0, unknown.front().find('='));
    const std::string meant = did_you_mean(option, options_of(known));
    fmt::print(stderr, "{}: unknown option '{}'{} {} '{} --help' for a list\n", speaker, option,
               meant.empty() ? ";" : meant, meant.empty() ? "run" : "Run", full_name(known));
    return 2;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", speaker, describe == nullptr ? error.what() : describe(error));
    return 1;
  }
  return 0;
}

bool Program::run(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
  try {
    app_->parse(reversed);
  } catch (const CLI::ParseError&) {
    return false;
  }
  return true;
}

}  // namespace qna::cli
