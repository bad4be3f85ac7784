#include "qna/train/processes.h"

// The header of the Gloo backend is empty without it.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <charconv>
#include <cstdlib>

#include "qna/base/error.h"

namespace qna::train {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int integer(const char* name, int least, int most) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
        "the environment variable {} must be from {} to {}, got '{}'", name, least, most, text);
  return value;
}

}  // namespace

struct Processes::Group {
  c10::intrusive_ptr<c10d::ProcessGroup> processes;
};

Rank rank_from_environment() {
  Rank rank;
  if (variable("WORLD_SIZE").empty() && variable("RANK").empty()) return rank;
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    check(!variable(name).empty(),
          "many processes need the environment variables RANK, WORLD_SIZE, MASTER_ADDR and "
          "MASTER_PORT, as torchrun sets them; {} is missing",
          name);
  }
  rank.ranks = integer("WORLD_SIZE", 1, 1 << 16);
  rank.rank = integer("RANK", 0, rank.ranks - 1);
  rank.local_ranks = variable("LOCAL_WORLD_SIZE").empty()
                         ? rank.ranks
                         : integer("LOCAL_WORLD_SIZE", 1, rank.ranks);
  rank.address = variable("MASTER_ADDR");
  rank.port = integer("MASTER_PORT", 1, 65535);
  return rank;
}

Processes::Processes(const Rank& rank, std::chrono::milliseconds timeout)
    : rank_(rank), timeout_(timeout) {
  if (rank.ranks == 1) return;
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<uint16_t>(rank.port);
    // torchrun keeps a store of its own at this address; without it the first process does.
    store_options.isServer = rank.rank == 0 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True";
    store_options.numWorkers = rank.ranks;
    store_options.waitWorkers = false;
    store_options.timeout = timeout;
    const auto store = c10::make_intrusive<c10d::TCPStore>(rank.address, store_options);
    const auto prefix = c10::make_intrusive<c10d::PrefixStore>(
        "qna/" + variable("TORCHELASTIC_RESTART_COUNT"), store);
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    const bool here = rank.address == "localhost" || rank.address == "127.0.0.1";
    options->devices.push_back(here ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                    : c10d::ProcessGroupGloo::createDefaultDevice());
    const auto gloo =
        c10::make_intrusive<c10d::ProcessGroupGloo>(prefix, rank.rank, rank.ranks, options);
    auto processes = c10::make_intrusive<c10d::ProcessGroup>(prefix, rank.rank, rank.ranks);
    processes->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    processes->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group_ = std::make_unique<Group>(Group{processes});
  } catch (const std::exception& error) {
    fail("process {} of {} did not reach the others at {}:{} within {} s: {}", rank.rank,
         rank.ranks, rank.address, rank.port, timeout.count() / 1000,
         std::string(error.what()).substr(0, 200));
  }
}

Processes::~Processes() = default;

void Processes::lost(const std::exception& error) const {
  const std::string reason = error.what();
  fail(
      "process {} of {} lost contact with another process, which died or did not answer within "
      "{} s. Start all of them again with --resume to go on from the last checkpoint. ({})",
      rank_.rank, rank_.ranks, timeout_.count() / 1000, reason.substr(0, reason.find('\n')));
}

void Processes::sum(torch::Tensor& tensor) const {
  if (!group_) return;
  try {
    std::vector<torch::Tensor> tensors = {tensor};
    group_->processes->allreduce(tensors)->wait();
  } catch (const std::exception& error) {
    lost(error);
  }
}

void Processes::broadcast(const std::vector<torch::Tensor>& tensors) const {
  if (!group_) return;
  torch::NoGradGuard no_grad;
  try {
    for (const torch::Tensor& tensor : tensors) {
      std::vector<torch::Tensor> one = {tensor.detach()};
      group_->processes->broadcast(one)->wait();
    }
  } catch (const std::exception& error) {
    lost(error);
  }
}

void Processes::barrier() const {
  torch::Tensor nothing = torch::zeros({1});
  sum(nothing);
}

GradientMean::GradientMean(const Processes& processes, const std::vector<torch::Tensor>& parameters)
    : processes_(processes) {
  if (processes.count() == 1) return;
  const std::vector<size_t> bucket_bytes = {c10d::kDefaultFirstBucketBytes,
                                            c10d::kDefaultBucketBytesCap};
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, bucket_bytes));
  // Gradients come in the reverse order of the parameters. The buckets are never built anew from
  // the order seen, as Python's wrapper does: a resumed run would add up in another order.
  std::reverse(buckets.begin(), buckets.end());
  reducer_ = std::make_unique<c10d::Reducer>(
      parameters, buckets, processes.group_->processes,
      /*expect_sparse_gradients=*/std::vector<bool>(parameters.size(), false),
      c10d::kDefaultBucketBytesCap, /*find_unused_parameters=*/false,
      /*gradient_as_bucket_view=*/false, /*param_names=*/std::unordered_map<size_t, std::string>{},
      c10d::kDefaultFirstBucketBytes, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

GradientMean::~GradientMean() = default;

void GradientMean::backward(const torch::Tensor& loss, bool share) {
  if (!reducer_) {
    loss.backward();
    return;
  }
  try {
    if (share) reducer_->prepare_for_backward({loss});
    loss.backward();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    processes_.lost(error);
  }
}

}  // namespace qna::train
