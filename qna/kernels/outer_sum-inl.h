// The gradient of a weight matrix: sum [m, n] = sum over rows of a [rows, m]^T b [rows, n].
//
// In turns: workers pack some thousand rows, each its own; then workers take columns of the sum,
// each over all packed rows in order. So no worker needs a sum of its own, which for the weights of
// a deep stage is larger than the second-level cache, and the result does not depend on how many
// there are. (outer_product-inl.h is for rows that come one by one.)

#if defined(QNA_KERNELS_OUTER_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QNA_KERNELS_OUTER_SUM_INL_H_
#undef QNA_KERNELS_OUTER_SUM_INL_H_
#else
#define QNA_KERNELS_OUTER_SUM_INL_H_
#endif

#include "qna/kernels/outer_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qna::kernels {
namespace HWY_NAMESPACE {

class OuterSum {
 public:
  OuterSum(int64_t m, int64_t n, int64_t capacity)
      : shape_(m, n, /*ones=*/false), capacity_(capacity) {}

  void carve(ScratchArena& arena) {
    a_ = arena.take<float>(shape_.tiles * kTileRows * capacity_);
    b_ = arena.take<float>(shape_.stride() * capacity_);
    sum_ = arena.take<float>(shape_.floats());
  }

  // Rows of a and b, `stride` apart, as packed rows `first` and following.
  void pack_a(int64_t first, const float* a, int64_t stride, int64_t rows) const {
    const int64_t whole = shape_.m / kTileRows;
    for (int64_t t = 0; t < whole; ++t) {  // tile by tile: their places are far apart
      const float* HWY_RESTRICT from = a + t * kTileRows;
      float* HWY_RESTRICT to = a_ + (t * capacity_ + first) * kTileRows;
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + r * kTileRows, from + r * stride, kTileRows * sizeof(float));
      }
    }
    if (whole == shape_.tiles) return;
    const int64_t rest = shape_.m - whole * kTileRows;
    float* HWY_RESTRICT to = a_ + (whole * capacity_ + first) * kTileRows;
    for (int64_t r = 0; r < rows; ++r, to += kTileRows) {
      std::memcpy(to, a + r * stride + whole * kTileRows, rest * sizeof(float));
      std::fill(to + rest, to + kTileRows, 0.0f);
    }
  }
  void pack_b(int64_t first, const float* b, int64_t stride, int64_t rows) const {
    for (int64_t p = 0; p < panels(); ++p) {
      const Panel panel = this->panel(p);
      for (int64_t r = 0; r < rows; ++r) {
        float* HWY_RESTRICT to = panel.data + (first + r) * panel.width;
        WidenRow(to, b + r * stride + panel.begin, panel.valid);
        std::fill(to + panel.valid, to + panel.width, 0.0f);
      }
    }
  }

  // Where column panel.begin and following of a packed row of b lie.
  struct Panel {
    float* data;
    int64_t begin, width, valid;
  };
  int64_t panels() const { return PanelCount(shape_.vectors, kMaxOuterPanel); }
  Panel panel(int64_t p) const {
    const int64_t begin = PanelBegin(shape_.vectors, p, kMaxOuterPanel) * Lanes();
    const int64_t width = PanelBegin(shape_.vectors, p + 1, kMaxOuterPanel) * Lanes() - begin;
    return {b_ + begin * capacity_, begin, width, std::min(width, shape_.n - begin)};
  }

  // The sum in independent tasks of some columns each. Adds the first `rows` packed rows, or, if
  // `first_time`, sets the sum to their products.
  int64_t tasks() const { return std::min<int64_t>(panels(), kMostTasks); }
  void add(int64_t task, int64_t rows, bool first_time) const {
    const int64_t begin = task * panels() / tasks();
    const int64_t end = (task + 1) * panels() / tasks();
    if (rows == 0 && first_time) {
      const int64_t columns = panel(end - 1).begin + panel(end - 1).width - panel(begin).begin;
      for (int64_t r = 0; r < shape_.tiles * kTileRows; ++r) {
        std::fill_n(sum_ + r * shape_.stride() + panel(begin).begin, columns, 0.0f);
      }
    }
    for (int64_t k = 0; k < rows; k += kRows) {
      const int64_t count = std::min(kRows, rows - k);
      for (int64_t p = begin; p < end; ++p) {
        add_panel(panel(p), k, count, first_time && k == 0);
      }
    }
  }

  const float* row(int64_t m) const { return sum_ + m * shape_.stride(); }

 private:
  // Packed rows that a panel of b is multiplied by while it stays in the first-level cache.
  static constexpr int64_t kRows = 256;
  static constexpr int64_t kMostTasks = 16;

  void add_panel(const Panel& panel, int64_t k, int64_t count, bool is_first) const {
    const float* b = panel.data + k * panel.width;
    const int64_t vectors = panel.width / Lanes();
    for (int64_t t = 0; t < shape_.tiles; ++t) {
      const float* a = a_ + (t * capacity_ + k) * kTileRows;
      float* sum = sum_ + t * kTileRows * shape_.stride() + panel.begin;
      OuterTileOf(vectors, a, b, count, sum, shape_.stride(), is_first);
    }
  }

  OuterShape shape_;
  int64_t capacity_;
  float* a_ = nullptr;  // [tiles][capacity][kTileRows]
  float* b_ = nullptr;  // [panels][capacity][panel's columns]
  float* sum_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace qna::kernels
HWY_AFTER_NAMESPACE();

#endif  // QNA_KERNELS_OUTER_SUM_INL_H_
