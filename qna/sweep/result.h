// What has become of the runs of a sweep, from their folders.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qna/sweep/statistics.h"
#include "qna/sweep/sweep.h"

namespace qna::sweep {

struct RunResult {
  bool trained = false;     // to its end
  bool finished = false;    // and measured
  std::string recipe = {};  // fingerprint of what was run
  std::map<std::string, double> numbers = {};
  // What differs from machine to machine, and from time to time.
  double seconds = kNone;
  double images_per_second = kNone;
  double peak_memory_mb = kNone;
};

// `folder` is that of the sweep. A run that was not made here may have a result that was taken
// over; one without a number that the sweep names counts as none. Throws qna::Error where the
// folder of a run has one of another recipe, or a finished run lacks a number that the sweep names.
RunResult read_result(const Sweep& sweep, const Run& run, const std::string& folder);

// Whether the measure of a run is there, made with the same arguments.
bool is_measured(const Measure& measure, const std::string& run_folder);

// The part of a run's folder that a sweep writes.
struct Record {
  std::string recipe = {};  // fingerprint of the run as it was begun
  bool trained = false;
  double peak_memory_mb = 0;
};
Record read_record(const std::string& run_folder);
void write_record(const std::string& run_folder, const Record& record);
void write_measure(const std::string& run_folder, const Measure& measure,
                   const nlohmann::json& numbers);
// In the place of a run: what the same one has come to elsewhere.
void write_taken(const std::string& run_folder, const Run& run, const RunResult& result);

// A row of the table.
struct RowResult {
  std::map<std::string, Statistics> numbers = {};
  std::map<std::string, std::vector<double>> values = {};  // the same run by run
  Statistics seconds = {}, images_per_second = {};
  double peak_memory_mb = kNone;  // the highest
};
std::vector<RowResult> row_results(const Sweep& sweep, const std::vector<RunResult>& runs);

}  // namespace qna::sweep
