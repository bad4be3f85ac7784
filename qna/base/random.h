// Random numbers as a pure function of what they are for, so that a run can be repeated, resumed
// and divided among threads and processes without a change in any number.
#pragma once

#include <array>
#include <cstdint>

namespace qna {

// SplitMix64 (Steele, Lea, Flood 2014): the next number of the stream that `state` is in.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;
inline uint64_t split_mix(uint64_t& state) {
  state += kSplitMixStep;
  uint64_t bits = state;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

// The standard library's distributions differ between implementations; these do not, but for the
// last bit of normal() and beta(), which use the logarithm, power and sine of the C library.
class Random {
 public:
  // Numbers for one purpose: what changes in any argument changes all of them. The stream starts at
  //   s = seed; s = split_mix(s) + v for v = epoch, index, purpose in turn; s = split_mix(s).
  explicit Random(uint64_t seed, uint64_t epoch = 0, uint64_t index = 0, uint64_t purpose = 0);

  uint64_t next();
  double uniform();                         // [0, 1)
  double uniform(double low, double high);  // [low, high)
  int64_t below(int64_t count);             // 0 .. count - 1, each equally likely
  bool chance(double probability);
  double normal();                          // mean 0, variance 1
  void normals(float* out, int64_t count);  // the same, twice as fast
  double beta(double alpha);                // Beta(alpha, alpha)

 private:
  std::array<double, 2> normal_pair();
  double gamma(double shape);
  uint64_t state_;
};

// What numbers are drawn for, the last argument of Random.
enum Purpose : uint64_t { kOrder = 1, kAugment = 2, kMix = 3, kSplit = 4 };

}  // namespace qna
