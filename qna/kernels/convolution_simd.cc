#include <limits>

#include "qna/kernels/convolution_taps.h"
#include "qna/kernels/network_simd.h"
#include "qna/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "qna/kernels/convolution_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "qna/kernels/mlp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

// Windows [first, first + count), counted through rows and images, become rows: [count][taps, in].
inline HWY_NOINLINE void GatherWindows(float* to, const ConvolutionShape& s, const float* x,
                                       int64_t first, int64_t count) {
  const int64_t in = s.in_features;
  const int64_t row_floats = s.kernel_w * in;
  for (int64_t n = first; n < first + count; ++n) {
    const int64_t image = n / (s.out_height * s.out_width);
    const int64_t top = n / s.out_width % s.out_height * s.stride_h - s.pad_top;
    const int64_t left = n % s.out_width * s.stride_w - s.pad_left;
    const TapRange rows = taps_inside(top, s.kernel_h, s.dilation_h, s.height);
    const TapRange columns = taps_inside(left, s.kernel_w, s.dilation_w, s.width);
    for (int64_t i = 0; i < s.kernel_h; ++i, to += row_floats) {
      if (!rows.holds(i) || columns.count() == 0) {
        std::fill_n(to, row_floats, 0.0f);
        continue;
      }
      const int64_t row = (image * s.height + top + i * s.dilation_h) * s.width + left;
      std::fill_n(to, columns.first * in, 0.0f);
      if (s.dilation_w == 1) {
        CopyFloats(to + columns.first * in, x + (row + columns.first) * in, columns.count() * in);
      } else {
        for (int64_t j = columns.first; j < columns.end; ++j) {
          CopyFloats(to + j * in, x + (row + j * s.dilation_w) * in, in);
        }
      }
      std::fill_n(to + columns.end * in, (s.kernel_w - columns.end) * in, 0.0f);
    }
  }
}

// How the output, rows by panels of columns, is cut into tasks. The cut changes no result: every
// element is computed on its own.
struct OutputTasks {
  OutputTasks(int64_t rows_in, int64_t panels_in, int64_t most_rows, bool gathers, int workers)
      : rows(rows_in), tiles((rows + kTileRows - 1) / kTileRows), panels(panels_in) {
    const int64_t fewest = std::max<int64_t>(1, (rows + most_rows - 1) / most_rows);
    // Few rows are rather cut by columns, so that each worker reads a part of the weights.
    double best = std::numeric_limits<double>::infinity();
    for (int64_t row_count = fewest; row_count <= std::min(tiles, fewest + workers); ++row_count)
      for (int64_t panel_count = 1; panel_count <= std::min<int64_t>(panels, 4 * workers);
           ++panel_count) {
        const int64_t rounds = (row_count * panel_count + workers - 1) / workers;
        const double time = static_cast<double>(rounds) *
                            task_time((tiles + row_count - 1) / row_count * kTileRows,
                                      (panels + panel_count - 1) / panel_count, gathers);
        if (time >= best) continue;
        best = time;
        row_tasks = row_count;
        panel_tasks = panel_count;
      }
  }

  // In cycles per element of a row: a vector's products for each row, the row's gathering at 4
  // floats per cycle, and the weights' way from the last cache at 8 bytes per cycle.
  static double task_time(int64_t rows, int64_t panels, bool gathers) {
    const auto vectors = static_cast<double>(panels * kMaxPanel);
    const auto count = static_cast<double>(rows);
    return count * vectors + (gathers ? count / 4 : 0.0) +
           vectors * static_cast<double>(Lanes() * int64_t{sizeof(float)}) / 8;
  }

  int64_t count() const { return row_tasks * panel_tasks; }
  int64_t first_row(int64_t part) const {
    return std::min(rows, part * tiles / row_tasks * kTileRows);
  }
  int64_t most_rows() const {
    return row_tasks == 0 ? 0 : (tiles + row_tasks - 1) / row_tasks * kTileRows;
  }
  PanelRange panels_of(int64_t part) const {
    return {part * panels / panel_tasks, (part + 1) * panels / panel_tasks};
  }

  int64_t rows, tiles, panels;
  int64_t row_tasks = 0, panel_tasks = 0;
};

// Whether the windows lie in x as rows already.
inline bool IsDense(const ConvolutionShape& s) {
  return s.taps() == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 && s.pad_left == 0 &&
         s.out_height == s.height && s.out_width == s.width;
}

void Convolution(const ConvolutionArgs& args, Runtime& runtime) {
  const ConvolutionShape& s = args.shape;
  const PackedMatrix weights = MatrixIn(*args.weights);
  const int64_t inner = weights.inner;
  const int64_t columns = weights.columns;
  const bool gathers = !IsDense(s);
  const bool buffers_rows = gathers || args.norm.wanted;
  const OutputTasks tasks(s.windows(), PanelCount(weights.vectors), ChunkRows(inner + columns),
                          buffers_rows, runtime.workers());
  const int64_t buffer_floats = buffers_rows ? tasks.most_rows() * inner : 0;
  auto* buffers = static_cast<float*>(
      runtime.scratch(runtime.workers() * buffer_floats * sizeof(float) + kScratchAlignment));
  runtime.for_each(tasks.count(), [&](int64_t task, int worker) HWY_ATTR {
    const int64_t part = task / tasks.panel_tasks;
    const int64_t first = tasks.first_row(part);
    const int64_t rows = tasks.first_row(part + 1) - first;
    float* buffer = buffers + worker * buffer_floats;
    const float* x = args.x + first * inner;  // if dense
    if (gathers) {
      GatherWindows(buffer, s, args.x, first, rows);
      x = buffer;
    }
    if (args.norm.wanted) {
      NormalizeRows(buffer, x, rows, inner, args.norm.epsilon);
      x = buffer;
    }
    const Residual residual =
        args.residual == nullptr ? Residual{} : Residual{args.residual + first * columns, columns};
    const auto activate = [&](float* block, int64_t count)
                              HWY_ATTR { Activate(block, columns, rows, count, args.activation); };
    Gemm(args.y + first * columns, columns, x, inner, rows, weights, residual, activate,
         tasks.panels_of(task % tasks.panel_tasks));
  });
}

constexpr ConvolutionKernel kConvolutionKernel = {&Convolution};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qna::kernels {
QNA_DEFINE_TARGET_LOOKUP(ConvolutionKernel, convolution_kernel, kConvolutionKernel)
}  // namespace qna::kernels
#endif
