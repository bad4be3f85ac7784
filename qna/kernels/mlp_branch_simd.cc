#include "qna/kernels/mlp_branch_simd.h"

#include <vector>

#include "qna/kernels/row_chunks.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/mlp_branch_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/branch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

using MlpInputs = MlpBranchInputs<float>;

inline SampleFactors FactorsOf(const MlpInputs& in) { return {in.drop_factor, in.drop_rows}; }

void MlpBranch(const MlpBranchArgs<float>& args, Runtime& runtime) {
  const MlpInputs& in = args.in;
  const int64_t features = in.features;
  const int64_t hidden = in.hidden;
  const RowChunks cut(in.rows, in.drop_factor, in.drop_rows, ChunkRows(features + hidden),
                      in.rows + 1, kTileRows, kTileRows);
  struct Worker {
    float* normed;  // [chunk][features]
    float* active;  // [chunk][hidden]
  };
  std::vector<Worker> workers(runtime.workers());
  ScratchMatrix expand, contract;
  const auto carve = [&](ScratchArena arena) {
    expand.carve(arena, features, hidden);
    contract.carve(arena, hidden, features);
    for (Worker& worker : workers) {
      worker = {arena.take<float>(cut.largest * features), arena.take<float>(cut.largest * hidden)};
    }
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));

  PackNormed(expand, runtime, in.weight1, in.bias1, in.norm_weight, in.norm_bias);
  contract.pack_transposed(runtime, in.weight2, nullptr);
  std::copy_n(in.bias2, features, contract.bias);

  runtime.for_each(cut.count(), [&](int64_t index, int id) HWY_ATTR {
    const RowChunk& chunk = cut.chunks[index];
    const Worker& worker = workers[id];
    const float* x = in.x + chunk.first * features;
    float* y = args.y + chunk.first * features;
    if (!chunk.live) {
      std::copy_n(x, chunk.rows * features, y);
      return;
    }
    NormalizeRows(worker.normed, x, chunk.rows, features, static_cast<float>(in.epsilon));
    float* h = args.h + chunk.first * hidden;
    Gemm(h, hidden, worker.normed, features, chunk.rows, expand.matrix, {},
         [&](float* block, int64_t columns) HWY_ATTR {
           Activate(worker.active + (block - h), hidden, block, hidden, chunk.rows, columns,
                    in.activation);
         });
    AddProduct(y, x, worker.active, contract.matrix, chunk, FactorsOf(in));
  });
}

class MlpBranchGradient {
 public:
  MlpBranchGradient(const MlpBranchBackwardArgs<float>& args, Runtime& runtime)
      : args_(args),
        in_(args.in),
        cut_(in_.rows, in_.drop_factor, in_.drop_rows,
             ChunkRows(in_.hidden + 3 * in_.features, kChunkBytes),
             kGroupBytes / (2 * (in_.hidden + in_.features) * int64_t{sizeof(float)}) + 1,
             kTileRows, kTileRows),
        sum1_(in_.hidden, in_.features, cut_.most_live),
        sum2_(in_.features, in_.hidden, cut_.most_live),
        workers_(runtime.workers()) {}

  void run(Runtime& runtime) {
    carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
    // Both are products with the rows of the weights as they lie.
    contract_.pack_rows(runtime, in_.weight2, nullptr);
    expand_.pack_rows(runtime, in_.weight1, in_.norm_weight);
    for (size_t g = 0; g < cut_.groups.size(); ++g) {
      const RowChunks::Group& group = cut_.groups[g];
      runtime.for_each(group.end - group.begin, [&](int64_t index, int worker) {
        pass(group.begin + index, workers_[worker]);
      });
      AddGroup(sum1_, sum2_, group.live_rows, g == 0, runtime);
    }
    finish(runtime);
  }

 private:
  struct Worker {
    float* grad;     // drop_factor dy [chunk][features]
    float* normed;   // [chunk][features]
    float* factors;  // [chunk]
    float* hidden;   // da, then dh [chunk][hidden]
    float* dn;       // [chunk][features]
  };

  size_t carve(ScratchArena arena) {
    contract_.carve(arena, in_.features, in_.hidden);
    expand_.carve(arena, in_.hidden, in_.features);
    sum1_.carve(arena);
    sum2_.carve(arena);
    bias1_ = arena.take<float>(cut_.count() * in_.hidden);
    bias2_ = arena.take<float>(cut_.count() * in_.features);
    for (Worker& worker : workers_) {
      worker.grad = arena.take<float>(cut_.largest * in_.features);
      worker.normed = arena.take<float>(cut_.largest * in_.features);
      worker.factors = arena.take<float>(cut_.largest);
      worker.hidden = arena.take<float>(cut_.largest * in_.hidden);
      worker.dn = arena.take<float>(cut_.largest * in_.features);
    }
    return arena.bytes();
  }

  // dx of a chunk, and its rows packed for the sums.
  void pass(int64_t index, const Worker& worker) const {
    const RowChunk& chunk = cut_.chunks[index];
    const int64_t features = in_.features;
    const int64_t hidden = in_.hidden;
    const float* dy = args_.grad_y + chunk.first * features;
    float* dx = args_.grad_x + chunk.first * features;
    float* bias1 = bias1_ + index * hidden;
    float* bias2 = bias2_ + index * features;
    std::fill_n(bias1, hidden, 0.0f);
    std::fill_n(bias2, features, 0.0f);
    if (!chunk.live) {
      std::copy_n(dy, chunk.rows * features, dx);
      return;
    }
    ScaleRows(worker.grad, dy, features, chunk, FactorsOf(in_));
    AddRows(bias2, worker.grad, chunk.rows, features);
    sum2_.pack_a(chunk.position, worker.grad, features, chunk.rows);

    // da = drop_factor dy W2, dh = da act'(h)
    Gemm(worker.hidden, hidden, worker.grad, features, chunk.rows, contract_.matrix);
    WithSlope(in_.activation, [&](const auto& function) HWY_ATTR {
      for (int64_t r = 0; r < chunk.rows; ++r) {
        activate_row(function, worker.hidden + r * hidden, args_.h + (chunk.first + r) * hidden,
                     chunk.position + r);
        AddRows(bias1, worker.hidden + r * hidden, 1, hidden);
      }
    });
    sum1_.pack_a(chunk.position, worker.hidden, hidden, chunk.rows);

    NormalizeRows(worker.normed, in_.x + chunk.first * features, chunk.rows, features,
                  static_cast<float>(in_.epsilon), worker.factors);
    sum1_.pack_b(chunk.position, worker.normed, features, chunk.rows);

    Gemm(worker.dn, features, worker.hidden, hidden, chunk.rows, expand_.matrix);
    NormBackwardRows(dx, dy, worker.dn, worker.normed, worker.factors, chunk.rows, features);
  }

  // da -> dh in place; act(h) to its place among the packed rows.
  template <typename Function>
  HWY_INLINE void activate_row(const Function& function, float* HWY_RESTRICT grad,
                               const float* HWY_RESTRICT h, int64_t position) const {
    const FloatTag d;
    const int64_t lanes = Lanes();
    for (int64_t p = 0; p < sum2_.panels(); ++p) {
      const OuterSum::Panel panel = sum2_.panel(p);
      float* HWY_RESTRICT to = panel.data + position * panel.width;
      for (int64_t v = 0; v < panel.width; v += lanes) {
        const int64_t c = panel.begin + v;
        if (HWY_LIKELY(v + lanes <= panel.valid)) {
          const ValueAndSlope a = function(hn::LoadU(d, h + c));
          hn::Store(a.value, d, to + v);
          hn::StoreU(hn::Mul(hn::LoadU(d, grad + c), a.slope), d, grad + c);
          continue;
        }
        // The last vector's columns that there are; 0 among the packed rows for the others.
        const int64_t rest = std::max<int64_t>(0, panel.valid - v);
        HWY_ALIGN float tail[2 * HWY_MAX_BYTES / sizeof(float)] = {};
        float* slope = tail + lanes;
        std::memcpy(tail, h + c, rest * sizeof(float));
        const ValueAndSlope a = function(hn::Load(d, tail));
        hn::Store(a.value, d, tail);
        hn::Store(a.slope, d, slope);
        for (int64_t i = 0; i < lanes; ++i) to[v + i] = i < rest ? tail[i] : 0.0f;
        for (int64_t i = 0; i < rest; ++i) grad[c + i] *= slope[i];
      }
    }
  }

  void finish(Runtime& runtime) const {
    const int64_t features = in_.features;
    const int64_t hidden = in_.hidden;
    AddChunks(args_.grad_bias1, bias1_, cut_.count(), hidden);
    AddChunks(args_.grad_bias2, bias2_, cut_.count(), features);
    runtime.for_each(features, [&](int64_t c, int) {
      std::copy_n(sum2_.row(c), hidden, args_.grad_weight2 + c * hidden);
    });
    NormedGradients{.outputs = hidden,
                    .features = features,
                    .weight = in_.weight1,
                    .norm_weight = in_.norm_weight,
                    .norm_bias = in_.norm_bias,
                    .bias = args_.grad_bias1,
                    .grad_weight = args_.grad_weight1,
                    .grad_norm_weight = args_.grad_norm_weight,
                    .grad_norm_bias = args_.grad_norm_bias}
        .write(sum1_, runtime);
  }

  const MlpBranchBackwardArgs<float>& args_;
  const MlpInputs& in_;
  const RowChunks cut_;
  OuterSum sum1_;  // dh^T n [hidden, features]
  OuterSum sum2_;  // (drop_factor dy)^T act(h) [features, hidden]
  ScratchMatrix contract_, expand_;
  float* bias1_;  // [chunks][hidden]
  float* bias2_;  // [chunks][features]
  std::vector<Worker> workers_;
};

void MlpBranchBackward(const MlpBranchBackwardArgs<float>& args, Runtime& runtime) {
  MlpBranchGradient(args, runtime).run(runtime);
}

constexpr MlpBranchKernels kMlpBranchKernels = {&MlpBranch, &MlpBranchBackward};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(MlpBranchKernels, mlp_branch_kernels, kMlpBranchKernels)
}  // namespace qna::kernels
#endif
