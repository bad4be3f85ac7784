// A value made from tensors, made again when one of them has changed.
#pragma once

#include <torch/types.h>

#include <memory>
#include <mutex>
#include <vector>

namespace qna::nn {

// Notices in-place changes by the tensors' version counters and replaced data by its address. What
// goes around both (writing through a raw pointer or tensor.data(), as torch::optim::SGD does) is
// not noticed: call clear(). Any number of threads may ask at once. A copy starts empty.
template <typename Value>
class Versioned {
 public:
  Versioned() = default;
  Versioned(const Versioned&) {}
  Versioned& operator=(const Versioned&) {
    clear();
    return *this;
  }

  // The value for `sources`, by make() where there is none. `tag` stands for all else it depends
  // on.
  template <typename Make>
  std::shared_ptr<const Value> get(const std::vector<torch::Tensor>& sources, const void* tag,
                                   const Make& make) {
    std::vector<Stamp> stamps;
    bool tracked = true;
    for (const torch::Tensor& source : sources) {
      // Tensors made in inference mode have no version counter.
      tracked = tracked && !source.is_inference();
      stamps.push_back(
          {source, source.storage(), source.const_data_ptr(), tracked ? source._version() : 0});
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!tracked || value_ == nullptr || tag != tag_ || !same(stamps)) {
      value_ = std::make_shared<const Value>(make());
      stamps_ = std::move(stamps);
      tag_ = tag;
    }
    return value_;
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    value_ = nullptr;
    stamps_.clear();
  }

 private:
  struct Stamp {
    torch::Tensor tensor;  // held, as its memory is, so that their addresses mean them alone
    c10::Storage storage;
    const void* data;
    int64_t version;
  };
  bool same(const std::vector<Stamp>& stamps) const {
    if (stamps.size() != stamps_.size()) return false;
    for (size_t i = 0; i < stamps.size(); ++i) {
      if (!stamps[i].tensor.is_same(stamps_[i].tensor) || stamps[i].data != stamps_[i].data ||
          stamps[i].version != stamps_[i].version) {
        return false;
      }
    }
    return true;
  }

  std::mutex mutex_;
  std::shared_ptr<const Value> value_;
  std::vector<Stamp> stamps_;
  const void* tag_ = nullptr;
};

}  // namespace qna::nn
