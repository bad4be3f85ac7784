// The QnA layer in a small network of your own: a block at full resolution, one that halves the
// map, one that doubles it again. Builds against an installed qna; see CMakeLists.txt beside this
// file.
#include <qna/qna.h>
#include <torch/torch.h>

#include <cstdio>

namespace {

// x + mix(norm(x)): attention in 7 x 7 windows, then a stride, then up-sampling.
struct NetworkImpl : torch::nn::Module {
  NetworkImpl() {
    using qna::nn::QnAOptions;
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    mix = register_module(
        "mix", qna::nn::QnA(QnAOptions{.in_features = 32, .heads = 4, .kernel_size = {7, 7}}));
    down = register_module(
        "down", qna::nn::QnA(QnAOptions{
                    .in_features = 32, .out_features = 64, .heads = 8, .stride = {2, 2}}));
    up = register_module(
        "up",
        qna::nn::QnA(QnAOptions{.in_features = 64, .out_features = 32, .heads = 8, .upsample = 2}));
  }

  torch::Tensor forward(torch::Tensor x) {  // [B, H, W, 32]
    x = x + mix(norm(x));                   // [B, H, W, 32]
    x = down(x);                            // [B, H/2, W/2, 64]
    return up(x);                           // [B, H, W, 32]
  }

  torch::nn::LayerNorm norm{nullptr};
  qna::nn::QnA mix{nullptr}, down{nullptr}, up{nullptr};
};
TORCH_MODULE(Network);

}  // namespace

int main() {
  torch::manual_seed(1);
  Network network;
  torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(3e-3));
  const torch::Tensor x = torch::randn({2, 20, 28, 32});  // any height and width that halves
  const torch::Tensor target = x.flip({2});

  float first = 0;
  float last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(network->forward(x), target);
    loss.backward();  // fused kernels
    optimizer.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  std::printf("loss %.4f -> %.4f after 20 steps\n", first, last);

  torch::NoGradGuard no_grad;  // now every layer is one fused kernel
  const torch::Tensor y = network->forward(torch::randn({1, 64, 96, 32}));
  std::printf("a 64 x 96 map gives %ld x %ld x %ld, by the %s kernels\n",
              static_cast<long>(y.size(1)), static_cast<long>(y.size(2)),
              static_cast<long>(y.size(3)), qna::kernels::chosen_implementation().name);
  return last < first ? 0 : 1;
}
