#include "qna/kernels/window_shape.h"

#include <initializer_list>

#include "qna/base/error.h"

namespace qna::kernels {
namespace {

// No array may need more than 2^48 elements: far above any memory, far below overflow in the
// pointer arithmetic that multiplies it by an element's size.
constexpr int64_t kMaxElements = int64_t{1} << 48;

void check_product(std::initializer_list<int64_t> factors, const char* what, const char* caller) {
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t factor : factors) {
    overflow |= __builtin_mul_overflow(product, factor, &product);
  }
  check(!overflow && product <= kMaxElements, "{}: {} must have at most 2^48 elements, got {}",
        caller, what, overflow ? "more than 2^63" : fmt::format("{}", product));
}

}  // namespace

void check_shape(const WindowShape& shape, const char* caller) {
  struct Field {
    const char* name;
    int64_t value;
    int64_t at_least;
  };
  const Field fields[] = {
      {"batch", shape.batch, 0},           {"height", shape.height, 1},
      {"width", shape.width, 1},           {"heads", shape.heads, 1},
      {"head_dim", shape.head_dim, 1},     {"queries", shape.queries, 1},
      {"kernel_h", shape.kernel_h, 1},     {"kernel_w", shape.kernel_w, 1},
      {"stride_h", shape.stride_h, 1},     {"stride_w", shape.stride_w, 1},
      {"pad_top", shape.pad_top, 0},       {"pad_bottom", shape.pad_bottom, 0},
      {"pad_left", shape.pad_left, 0},     {"pad_right", shape.pad_right, 0},
      {"dilation_h", shape.dilation_h, 1}, {"dilation_w", shape.dilation_w, 1},
  };
  // A single extent above 2^31 overflows sums like height + padding only in theory; forbid it.
  constexpr int64_t kMaxExtent = int64_t{1} << 31;
  for (const Field& field : fields) {
    check(field.value >= field.at_least, "{}: {} must be at least {}, got {}", caller, field.name,
          field.at_least, field.value);
    check(field.value <= kMaxExtent, "{}: {} must be at most 2^31, got {}", caller, field.name,
          field.value);
  }
  check_product({shape.kernel_h, shape.dilation_h}, "the window's height", caller);
  check_product({shape.kernel_w, shape.dilation_w}, "the window's width", caller);
  const int64_t padded_h = shape.height + shape.pad_top + shape.pad_bottom;
  const int64_t padded_w = shape.width + shape.pad_left + shape.pad_right;
  check(shape.span_h() <= padded_h,
        "{}: the window must fit the padded map, got a window {} rows high "
        "(kernel {}, dilation {}) on {} padded rows",
        caller, shape.span_h(), shape.kernel_h, shape.dilation_h, padded_h);
  check(shape.span_w() <= padded_w,
        "{}: the window must fit the padded map, got a window {} columns wide "
        "(kernel {}, dilation {}) on {} padded columns",
        caller, shape.span_w(), shape.kernel_w, shape.dilation_w, padded_w);
  check_product({shape.batch, shape.height, shape.width, shape.heads, shape.head_dim},
                "the value map", caller);
  check_product({shape.batch, shape.height, shape.width, shape.queries, shape.heads},
                "the score map", caller);
  check_product({shape.kernel_h, shape.kernel_w, shape.queries, shape.heads}, "the relative bias",
                caller);
  check_product({shape.batch, shape.out_height(), shape.out_width(), shape.outputs(), shape.heads,
                 shape.head_dim},
                "the output", caller);
}

}  // namespace qna::kernels
