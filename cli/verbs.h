// The verbs of the program qna. Each adds itself to the program; its callback does the work and
// throws on failure.
#pragma once

namespace CLI {
class App;
}

namespace qna::cli {

void add_models(CLI::App& app);
void add_info(CLI::App& app);
void add_import(CLI::App& app);
void add_export(CLI::App& app);
void add_eval(CLI::App& app);
void add_coco_eval(CLI::App& app);
void add_compare(CLI::App& app);
void add_data(CLI::App& app);
void add_predict(CLI::App& app);
void add_detect(CLI::App& app);
void add_reconstruct(CLI::App& app);
void add_features(CLI::App& app);
void add_attend(CLI::App& app);
void add_kernels(CLI::App& app);

}  // namespace qna::cli
