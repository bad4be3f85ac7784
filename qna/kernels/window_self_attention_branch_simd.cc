#include "qna/kernels/window_self_attention_branch_simd.h"

#include <cmath>
#include <vector>

#include "qna/kernels/row_chunks.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/window_self_attention_branch_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/branch-inl.h"
#include "qna/kernels/window_self_attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

using AttentionInputs = WindowSelfAttentionBranchInputs<float>;

inline SampleFactors FactorsOf(const AttentionInputs& in) {
  return {in.drop_factor, in.image_rows()};
}

// Rows by chunks in groups of whole images, of whose rows `floats` each are kept from one pass over
// the group to the next.
inline RowChunks CutImages(const AttentionInputs& in, int64_t chunk_rows, int64_t floats) {
  return {in.rows(),
          in.drop_factor,
          in.image_rows(),
          chunk_rows,
          kGroupBytes / (floats * int64_t{sizeof(float)}) + 1,
          kTileRows,
          in.image_rows()};
}

// The images of each group that take part.
inline std::vector<std::vector<int64_t>> LiveImages(const AttentionInputs& in,
                                                    const RowChunks& cut) {
  std::vector<std::vector<int64_t>> groups;
  int64_t image = 0;
  for (const RowChunks::Group& group : cut.groups) {
    std::vector<int64_t>& images = groups.emplace_back();
    while (static_cast<int64_t>(images.size()) * in.image_rows() < group.live_rows) {
      if (in.drop_factor == nullptr || in.drop_factor[image] != 0) images.push_back(image);
      ++image;
    }
  }
  return groups;
}

void AttentionBranch(const WindowSelfAttentionBranchArgs<float>& args, Runtime& runtime) {
  const AttentionInputs& in = args.in;
  const int64_t features = in.features;
  const WindowSelfAttentionArgs<float> attention = in.attention(args.qkv, args.mixed);
  const RowChunks cut = CutImages(in, ChunkRows(4 * features), 5 * features);
  const auto images = LiveImages(in, cut);
  std::vector<float*> normed(runtime.workers());  // [chunk][features]
  ScratchMatrix expand, project;
  AttentionForward forward;
  const auto carve = [&](ScratchArena arena) {
    expand.carve(arena, features, 3 * features);
    project.carve(arena, features, features);
    for (float*& rows : normed) rows = arena.take<float>(cut.largest * features);
    forward.carve(arena, attention, runtime.workers());
    return arena.bytes();
  };
  carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
  PackNormed(expand, runtime, in.qkv_weight, nullptr, in.norm_weight, in.norm_bias);
  project.pack_transposed(runtime, in.proj_weight, nullptr);

  for (size_t g = 0; g < cut.groups.size(); ++g) {
    const RowChunks::Group& group = cut.groups[g];
    const auto each_chunk = [&](const auto& use) {
      runtime.for_each(group.end - group.begin, [&](int64_t index, int worker) {
        use(cut.chunks[group.begin + index], worker);
      });
    };
    each_chunk([&](const RowChunk& chunk, int worker) {
      const float* x = in.x + chunk.first * features;
      if (!chunk.live) {
        std::copy_n(x, chunk.rows * features, args.y + chunk.first * features);
        return;
      }
      NormalizeRows(normed[worker], x, chunk.rows, features, static_cast<float>(in.epsilon));
      Gemm(args.qkv + chunk.first * 3 * features, 3 * features, normed[worker], features,
           chunk.rows, expand.matrix);
    });
    forward.run(attention, AttentionTasks(attention, images[g]), runtime);
    each_chunk([&](const RowChunk& chunk, int) {
      if (!chunk.live) return;
      const int64_t at = chunk.first * features;
      AddProduct(args.y + at, in.x + at, args.mixed + at, project.matrix, chunk, FactorsOf(in));
    });
  }
}

class AttentionBranchGradient {
 public:
  AttentionBranchGradient(const WindowSelfAttentionBranchBackwardArgs<float>& args,
                          Runtime& runtime)
      : args_(args),
        in_(args.in),
        // Nothing is written through `out` on the way back.
        attention_(in_.attention(args.qkv, const_cast<float*>(args.mixed))),
        // Both sums' packed rows and the gradients of mixed and qkv.
        cut_(CutImages(in_, ChunkRows(6 * in_.features, kChunkBytes), 10 * in_.features)),
        images_(LiveImages(in_, cut_)),
        qkv_sum_(3 * in_.features, in_.features, cut_.most_live),
        proj_sum_(in_.features, in_.features, cut_.most_live),
        gradient_(attention_, cut_.most_live / in_.image_rows(), runtime.workers()),
        workers_(runtime.workers()) {}

  void run(Runtime& runtime) {
    carve(ScratchArena(runtime.scratch(carve(ScratchArena()))));
    // Both are products with the rows of the weights as they lie.
    project_.pack_rows(runtime, in_.proj_weight, nullptr);
    expand_.pack_rows(runtime, in_.qkv_weight, in_.norm_weight);
    for (size_t g = 0; g < cut_.groups.size(); ++g) {
      const RowChunks::Group& group = cut_.groups[g];
      const auto each_chunk = [&](const auto& use) {
        runtime.for_each(group.end - group.begin, [&](int64_t index, int worker) {
          use(group.begin + index, workers_[worker]);
        });
      };
      each_chunk([&](int64_t index, const Worker& worker) { project(index, worker); });
      gradient_.run({.forward = attention_,
                     .grad_out = grad_mixed_,
                     .grad_qkv = grad_qkv_,
                     .grad_bias = nullptr},
                    AttentionTasks(attention_, images_[g]), runtime);
      each_chunk([&](int64_t index, const Worker& worker) { expand(index, worker); });
      AddGroup(qkv_sum_, proj_sum_, group.live_rows, g == 0, runtime);
    }
    finish(runtime);
  }

 private:
  struct Worker {
    float* rows;     // drop_factor dy, then the gradient of n [chunk][features]
    float* normed;   // [chunk][features]
    float* factors;  // [chunk]
  };

  size_t carve(ScratchArena arena) {
    const int64_t features = in_.features;
    project_.carve(arena, features, features);
    expand_.carve(arena, 3 * features, features);
    qkv_sum_.carve(arena);
    proj_sum_.carve(arena);
    gradient_.carve(arena);
    grad_mixed_ = arena.take<float>(cut_.most_live * features);
    grad_qkv_ = arena.take<float>(cut_.most_live * 3 * features);
    row_sums_ = arena.take<float>((cut_.count() + 1) * 3 * features);
    for (Worker& worker : workers_) {
      worker.rows = arena.take<float>(cut_.largest * features);
      worker.normed = arena.take<float>(cut_.largest * features);
      worker.factors = arena.take<float>(cut_.largest);
    }
    return arena.bytes();
  }

  // The gradient of mixed, of a chunk.
  void project(int64_t index, const Worker& worker) const {
    const RowChunk& chunk = cut_.chunks[index];
    const int64_t features = in_.features;
    const float* dy = args_.grad_y + chunk.first * features;
    if (!chunk.live) {
      std::copy_n(dy, chunk.rows * features, args_.grad_x + chunk.first * features);
      return;
    }
    ScaleRows(worker.rows, dy, features, chunk, FactorsOf(in_));
    proj_sum_.pack_a(chunk.position, worker.rows, features, chunk.rows);
    proj_sum_.pack_b(chunk.position, args_.mixed + chunk.first * features, features, chunk.rows);
    Gemm(grad_mixed_ + chunk.position * features, features, worker.rows, features, chunk.rows,
         project_.matrix);
  }

  // From the gradient of qkv to dx.
  void expand(int64_t index, const Worker& worker) const {
    const RowChunk& chunk = cut_.chunks[index];
    const int64_t features = in_.features;
    float* sums = row_sums_ + index * 3 * features;
    std::fill_n(sums, 3 * features, 0.0f);
    if (!chunk.live) return;
    const float* grad = grad_qkv_ + chunk.position * 3 * features;
    AddRows(sums, grad, chunk.rows, 3 * features);
    qkv_sum_.pack_a(chunk.position, grad, 3 * features, chunk.rows);
    const int64_t at = chunk.first * features;
    NormalizeRows(worker.normed, in_.x + at, chunk.rows, features, static_cast<float>(in_.epsilon),
                  worker.factors);
    qkv_sum_.pack_b(chunk.position, worker.normed, features, chunk.rows);
    Gemm(worker.rows, features, grad, 3 * features, chunk.rows, expand_.matrix);
    NormBackwardRows(args_.grad_x + at, args_.grad_y + at, worker.rows, worker.normed,
                     worker.factors, chunk.rows, features);
  }

  void finish(Runtime& runtime) const {
    const int64_t features = in_.features;
    gradient_.write_bias(args_.grad_bias);
    runtime.for_each(features, [&](int64_t c, int) {
      std::copy_n(proj_sum_.row(c), features, args_.grad_proj_weight + c * features);
    });
    float* total = row_sums_ + cut_.count() * 3 * features;
    AddChunks(total, row_sums_, cut_.count(), 3 * features);
    NormedGradients{.outputs = 3 * features,
                    .features = features,
                    .weight = in_.qkv_weight,
                    .norm_weight = in_.norm_weight,
                    .norm_bias = in_.norm_bias,
                    .bias = total,
                    .grad_weight = args_.grad_qkv_weight,
                    .grad_norm_weight = args_.grad_norm_weight,
                    .grad_norm_bias = args_.grad_norm_bias}
        .write(qkv_sum_, runtime);
  }

  const WindowSelfAttentionBranchBackwardArgs<float>& args_;
  const AttentionInputs& in_;
  const WindowSelfAttentionArgs<float> attention_;
  const RowChunks cut_;
  const std::vector<std::vector<int64_t>> images_;  // of each group
  OuterSum qkv_sum_;                                // dqkv^T n [3 features, features]
  OuterSum proj_sum_;                               // (drop_factor dy)^T mixed [features, features]
  AttentionGradient gradient_;
  ScratchMatrix project_, expand_;
  float* grad_mixed_;  // [group's live rows][features]
  float* grad_qkv_;    // [group's live rows][3 features]
  float* row_sums_;    // of grad_qkv: [chunks][3 features], and one row for all of them
  std::vector<Worker> workers_;
};

void AttentionBranchBackward(const WindowSelfAttentionBranchBackwardArgs<float>& args,
                             Runtime& runtime) {
  AttentionBranchGradient(args, runtime).run(runtime);
}

constexpr WindowSelfAttentionBranchKernels kWindowSelfAttentionBranchKernels = {
    &AttentionBranch, &AttentionBranchBackward};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(WindowSelfAttentionBranchKernels, window_self_attention_branch_kernels,
                         kWindowSelfAttentionBranchKernels)
}  // namespace qna::kernels
#endif
