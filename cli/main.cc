// qna <verb>: a table of verbs, one file each.
#include <c10/util/Exception.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/verbs.h"

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // Maps come and go with every layer. By default malloc gives large ones back to the system, which
  // then clears them page by page each time: some percent of a network's time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  CLI::App app(
      "qna: learned queries for efficient local attention, on CPUs.\n"
      "Run 'qna VERB --help' for a verb's options and examples.");
  app.name("qna");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);

  qna::cli::add_models(app);
  qna::cli::add_info(app);
  qna::cli::add_import(app);
  qna::cli::add_export(app);
  qna::cli::add_train(app);
  qna::cli::add_eval(app);
  qna::cli::add_coco_eval(app);
  qna::cli::add_compare(app);
  qna::cli::add_data(app);
  qna::cli::add_predict(app);
  qna::cli::add_detect(app);
  qna::cli::add_reconstruct(app);
  qna::cli::add_features(app);
  qna::cli::add_attend(app);
  qna::cli::add_bench(app);
  qna::cli::add_kernels(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 asks for a verb before it looks at what stands in its place.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    if (unknown.empty()) return app.exit(error) == 0 ? 0 : 2;
    std::fprintf(stderr, "qna: unknown verb '%s'; run 'qna --help' for a list\n",
                 unknown.front().c_str());
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "qna: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "qna: %s\n", error.what());
    return 1;
  }
  return 0;
}
