#include "bench/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "bench/cli/verbs.h"
#include "qna/base/file.h"

namespace qna::cli {
namespace {

struct ProductArguments {
  std::vector<std::string> models = {"qna_vit_tiny", "qna_vit_base"};
  int64_t batch = 8;
  std::string csv;
  bench::ProductOptions options;
};

void run_product(ProductArguments& a) {
  for (const std::string& model : a.models) {
    const std::vector<bench::ProductCase> cases = bench::model_products(model, a.batch);
    a.options.cases.insert(a.options.cases.end(), cases.begin(), cases.end());
  }
  const std::vector<bench::ProductResult> results = bench::run_product_bench(a.options);
  fmt::print("{}", bench::product_table(results, a.options));
  if (!a.csv.empty()) {
    write_file(a.csv, bench::product_csv(results, a.options));
    fmt::print("\nwrote {}\n", a.csv);
  }
}

}  // namespace

void add_bench_product(Command program) {
  Command verb = program.verb(
      "product",
      "The matrix product inside the kernels beside LibTorch's, on the networks' shapes");
  auto a = std::make_shared<ProductArguments>();
  a->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  verb.option("--model", a->models, "Whose products, at 224 px [qna_vit_tiny,qna_vit_base]")
      .comma_separated();
  verb.option("--batch", a->batch, "Images [8]").range(1, 1024);
  verb.option("--threads", a->options.threads, "Threads [all cores]").range(1, 1024);
  verb.option("--rounds", a->options.rounds, "Interleaved rounds [9]").range(1, 10000);
  verb.option("--csv", a->csv, "Also write all measurements to this file");
  verb.footer(
      "Peers: LibTorch's mm, which is MKL's, and its linear layer by oneDNN; all with weights\n"
      "that were prepared before. The products of QnA-Small are those of QnA-Tiny.\n\n"
      "Examples:\n"
      "  qna bench product\n"
      "  QNA_KERNEL=avx2 qna bench product --batch 1 --csv product.csv");
  verb.callback([a] { run_product(*a); });
}

}  // namespace qna::cli
