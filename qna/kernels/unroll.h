// QNA_UNROLL before a loop of a small constant count over an array of vectors: all of it is written
// out. Without it GCC writes such loops out too late to keep the array in registers alone.
//
// QNA_IN_REGISTER(vector): it is used several times. Left alone, GCC reads it from memory at each
// use.
#pragma once

#if defined(__clang__)
#define QNA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QNA_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__x86_64__)
#define QNA_IN_REGISTER(vector) asm("" : "+v"((vector).raw))
#else
#define QNA_IN_REGISTER(vector) (void)(vector)
#endif
