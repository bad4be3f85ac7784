// Many processes that train one model: c10d with Gloo underneath.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Reducer;
}  // namespace c10d

namespace qna::train {

// Who we are among the processes, as torchrun says it in the environment.
struct Rank {
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;  // on this machine
  std::string address = {};
  int port = 0;
};

// RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; one process where none is set.
// Throws qna::Error where some are missing or make no sense.
Rank rank_from_environment();

// One process needs nothing and all calls return at once. Where another process dies or does not
// answer within the timeout, they throw qna::Error that says so.
class Processes {
 public:
  Processes(const Rank& rank, std::chrono::milliseconds timeout);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return rank_.rank; }
  int count() const { return rank_.ranks; }
  bool is_first() const { return rank_.rank == 0; }

  // In place, of a contiguous CPU tensor that has the same size everywhere.
  void sum(torch::Tensor& tensor) const;
  // Those of the first process become everyone's.
  void broadcast(const std::vector<torch::Tensor>& tensors) const;
  void barrier() const;

 private:
  friend class GradientMean;
  [[noreturn]] void lost(const std::exception& error) const;
  const Rank rank_;
  const std::chrono::milliseconds timeout_;
  struct Group;
  std::unique_ptr<Group> group_;  // empty for one process
};

// The mean of gradients over all processes, computed in buckets while the backward pass still runs
// (c10d::Reducer).
class GradientMean {
 public:
  GradientMean(const Processes& processes, const std::vector<torch::Tensor>& parameters);
  ~GradientMean();

  // backward() of a loss. share: whether the gradients become the mean of all processes now;
  // otherwise they are added up here, for a later call that shares.
  void backward(const torch::Tensor& loss, bool share);

 private:
  const Processes& processes_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace qna::train
