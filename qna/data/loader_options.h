// What the loaders of all kinds of batches have in common for a caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qna::data {

struct LoaderOptions {
  int64_t batch = 64;  // images, of all processes together
  int workers = 2;     // threads
  int64_t ahead = 4;   // batches that are made or wait to be taken
  uint64_t seed = 0;
  bool shuffle = true;  // off: the data set's order, as evaluation wants it
  int rank = 0;         // of this process among `ranks`
  int ranks = 1;
  bool skip_broken = false;              // leave broken images out instead of throwing
  size_t cache_bytes = size_t{1} << 30;  // of decoded images
  int64_t classes = 0;                   // of the model; 0: as many as the data set has
  double label_smoothing = 0;            // this share of a target goes to all classes alike
  double temperature = 1;                // of a teacher's probabilities
};

// All but classes, label_smoothing and temperature, which only some loaders use. Throws qna::Error
// that begins with `where`.
void check_loader_options(const LoaderOptions& options, const char* where);

}  // namespace qna::data
