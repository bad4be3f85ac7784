#include "qna/nn/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace qna::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Run = std::function<torch::Tensor(const torch::Tensor&)>;

// What run does beside computing: put back for the second time.
struct Surroundings {
  static Surroundings now() {
    return {at::detail::getDefaultCPUGenerator().get_state(),
            at::autocast::is_autocast_enabled(at::kCPU),
            at::autocast::get_autocast_dtype(at::kCPU)};
  }
  void restore() const {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(random);
    at::autocast::set_autocast_enabled(at::kCPU, autocast);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
  }
  torch::Tensor random;
  bool autocast;
  at::ScalarType dtype;
};

// Puts back what was, also when run throws.
struct RestoreSurroundings {
  ~RestoreSurroundings() { before.restore(); }
  const Surroundings before = Surroundings::now();
};

// Autocast keeps lowered weights for later use in its region. Those made in here have no graph, or
// one that is freed before that.
struct NoAutocastCache {
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before); }
  const bool before = at::autocast::is_autocast_cache_enabled();
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  struct Piece : torch::CustomClassHolder {
    Run run;
    Surroundings surroundings;
  };

  // Autograd sees the tensors of a TensorList, but not those of a vector.
  static torch::Tensor forward(AutogradContext* context, const Run& run, at::TensorList inputs) {
    const auto piece = c10::make_intrusive<Piece>();
    piece->run = run;
    piece->surroundings = Surroundings::now();
    context->saved_data["piece"] = c10::IValue::make_capsule(piece);
    context->save_for_backward(inputs.vec());
    const NoAutocastCache no_cache;
    return run(inputs.front());  // autograd is off in here
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto piece =
        c10::static_intrusive_pointer_cast<Piece>(context->saved_data["piece"].toCapsule());
    variable_list inputs = context->get_saved_variables();
    const bool wants_x = inputs.front().requires_grad();
    torch::AutoGradMode enabled(true);
    inputs.front() = inputs.front().detach().requires_grad_(wants_x);

    const torch::Tensor y = [&] {
      const RestoreSurroundings afterwards;
      const NoAutocastCache no_cache;
      piece->surroundings.restore();
      return piece->run(inputs.front());
    }();

    variable_list wanted;
    for (const torch::Tensor& input : inputs) {
      if (input.requires_grad()) wanted.push_back(input);
    }
    const variable_list found = torch::autograd::grad({y}, wanted, {grads.front()},
                                                      /*retain_graph=*/std::nullopt,
                                                      /*create_graph=*/false,
                                                      /*allow_unused=*/true);
    variable_list out = {torch::Tensor()};  // for run
    size_t next = 0;
    for (const torch::Tensor& input : inputs) {
      out.push_back(input.requires_grad() ? found[next++] : torch::Tensor());
    }
    return out;
  }
};

}  // namespace

torch::Tensor recompute(const Run& run, const torch::Tensor& x,
                        const std::vector<torch::Tensor>& parameters) {
  if (!torch::GradMode::is_enabled()) return run(x);
  variable_list inputs = {x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return Recomputed::apply(run, at::TensorList(inputs));
}

}  // namespace qna::nn
