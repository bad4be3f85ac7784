#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

namespace qna::cli {

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
  try {
    app_->parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 asks for a verb before it looks at what stands in its place.
    const std::vector<std::string> unknown = app_->remaining(/*recurse=*/true);
    if (unknown.empty() || app_->get_subcommands([](CLI::App*) { return true; }).empty()) {
      return app_->exit(error) == 0 ? 0 : 2;
    }
    fmt::print(stderr, "{}: unknown verb '{}'; run '{} --help' for a list\n", speaker,
               unknown.front(), name);
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
