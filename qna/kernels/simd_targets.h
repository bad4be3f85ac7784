// From a Highway target to what was compiled for it. Does not include Highway itself: that must
// come after foreach_target.h.
#pragma once

// Defines `Kernels name(int64_t target)`: the constant TABLE of the target's namespace, or {} where
// this build has no such target. Only inside #if HWY_ONCE. (A constant, not a function: a function
// of another target must not run on a CPU that lacks it.)
#define QNA_DEFINE_TARGET_LOOKUP(Kernels, name, TABLE)                    \
  Kernels name(int64_t target) {                                          \
    const Kernels* table = nullptr;                                       \
    if (target == HWY_AVX3) table = HWY_CHOOSE_AVX3(TABLE);               \
    if (target == HWY_AVX2) table = HWY_CHOOSE_AVX2(TABLE);               \
    if (target == HWY_SSE4) table = HWY_CHOOSE_SSE4(TABLE);               \
    if (target == HWY_NEON) table = HWY_CHOOSE_NEON(TABLE);               \
    if (target == HWY_STATIC_TARGET) table = &HWY_STATIC_DISPATCH(TABLE); \
    return table == nullptr ? Kernels{} : *table;                         \
  }
