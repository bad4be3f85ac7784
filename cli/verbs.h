// The verbs of the program qna. Each adds itself to the program; its callback does the work and
// throws on failure.
#pragma once

#include "cli/command.h"

namespace qna::cli {

void add_models(Command program);
void add_info(Command program);
void add_import(Command program);
void add_export(Command program);
void add_eval(Command program);
void add_coco_eval(Command program);
void add_compare(Command program);
void add_data(Command program);
void add_predict(Command program);
void add_detect(Command program);
void add_reconstruct(Command program);
void add_features(Command program);
void add_attend(Command program);
void add_kernels(Command program);
void add_completion(Command program);
void add_recipes(Command program);
void add_sweep(Command program);

}  // namespace qna::cli
