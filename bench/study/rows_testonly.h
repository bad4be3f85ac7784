// Made-up rows.
#pragma once

#include <string>

#include "bench/study/row.h"

namespace qna::bench::study {

inline Row made_row(const std::string& subject, const Case& shape, double ms, int64_t extra_bytes,
                    std::string_view pass = kForward) {
  Row row;
  row.subject = subject;
  row.pass = std::string(pass);
  row.shape = shape;
  row.threads = 2;
  row.min_ms = ms;
  row.median_ms = 1.1 * ms;
  row.spread = 0.125;
  row.runs = 5;
  row.extra_bytes = extra_bytes;
  row.peak_bytes = extra_bytes + 1000;
  row.memory = "counted";
  row.difference = 1e-6;
  row.version = "torch 2.13, \"quoted\"";
  row.machine = "a machine, 2 cores";
  row.commit = "abc1234";
  return row;
}

inline Row skipped_row(const std::string& subject, const Case& shape, const std::string& why,
                       std::string_view pass = kForward) {
  Row row;
  row.subject = subject;
  row.pass = std::string(pass);
  row.shape = shape;
  row.skipped = why;
  row.commit = "abc1234";
  return row;
}

}  // namespace qna::bench::study
