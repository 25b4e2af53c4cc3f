// Shared memory by the 32-bit addresses that its own instructions take.
//
// Every access says "memory", so that the compiler moves it neither past a barrier nor past C++
// accesses to the same bytes.
#pragma once

namespace cubinery::dev {

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Load one, two or four words.  Requires: `at` is a multiple of their size.
__device__ inline void load_shared(float& x, unsigned at) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
}
__device__ inline void load_shared(float (&x)[2], unsigned at) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(at) : "memory");
}
__device__ inline void load_shared(float (&x)[2][2], unsigned at) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0][0]), "=f"(x[0][1]), "=f"(x[1][0]), "=f"(x[1][1])
               : "r"(at)
               : "memory");
}
__device__ inline void load_shared(unsigned (&x)[2][2], unsigned at) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0][0]), "=r"(x[0][1]), "=r"(x[1][0]), "=r"(x[1][1])
               : "r"(at)
               : "memory");
}

__device__ inline void load_shared(uint2& x, unsigned at) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory");
}
__device__ inline void load_shared(uint4& x, unsigned at) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
}

// 16 bytes of zeros.
__device__ inline void store_shared_zeros(unsigned at) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
}
__device__ inline void store_shared(unsigned at, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}
__device__ inline void store_shared(unsigned at, unsigned x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
__device__ inline void store_shared(unsigned at, const float (&x)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(x[0]), "f"(x[1]) : "memory");
}
__device__ inline void store_shared(unsigned at, unsigned short x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(x) : "memory");
}

// Load four 8x8 matrices of 16-bit elements, with a whole warp.  Lanes 8 m to 8 m + 7 pass the
// addresses of the rows of the m-th, which arrives in the m-th word.
__device__ inline void load_matrices(unsigned& x0, unsigned& x1, unsigned& x2, unsigned& x3,
                                     unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3)
               : "r"(at)
               : "memory");
}
// The transposes of the matrices.
__device__ inline void load_transposed_matrices(unsigned& x0, unsigned& x1, unsigned& x2,
                                                unsigned& x3, unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3)
               : "r"(at)
               : "memory");
}

// Stores four 8x8 matrices of 16-bit elements, as load_matrices() loads them.
__device__ inline void store_matrices(unsigned at, unsigned x0, unsigned x1, unsigned x2,
                                      unsigned x3) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(x0), "r"(x1), "r"(x2), "r"(x3)
               : "memory");
#else
  const unsigned x[] = {x0, x1, x2, x3};
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const unsigned row = __shfl_sync(0xffffffffu, at, 8 * m + threadIdx.x % 32 / 4);
    store_shared(row + threadIdx.x % 4 * 4, x[m]);
  }
#endif
}

// Stores the transposes of four 8x8 matrices of 16-bit elements, as load_transposed_matrices()
// loads them.
__device__ inline void store_transposed_matrices(unsigned at, unsigned x0, unsigned x1, unsigned x2,
                                                 unsigned x3) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(x0), "r"(x1), "r"(x2), "r"(x3)
               : "memory");
#endif
}

}  // namespace cubinery::dev
