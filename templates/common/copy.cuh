// Asynchronous copies from global to shared memory (cp.async).
#pragma once

#include "common/params.h"
#include "common/shared.cuh"
#include "common/types.cuh"

namespace cubinery::dev {

// Starts copying 16 bytes, through L2 only: the data is used once per block.  Requires: both
// addresses are multiples of 16.
__device__ inline void copy_16(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// The same, or writes zeros and reads nothing.
__device__ inline void copy_16_or_zeros(unsigned shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// As copy_16(), of 4, 8 or 16 bytes.  Requires: both addresses are multiples of that.
template <int kBytes>
__device__ void copy_vector(unsigned shared, const void* global) {
  if constexpr (kBytes == 16) {
    copy_16(shared, global);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(kBytes)
                 : "memory");
  }
}

// Ends a group of copies of this thread.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the kPending last groups of this thread are under way.
template <int kPending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

constexpr int greatest_common_divisor(int a, int b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

// Where the 16-byte pieces of rows lie in shared memory: rows kBytes apart.
template <int kBytes>
struct PlainRows {
  static constexpr bool kIsLinear = true;  // at() of a sum is the sum
  static __device__ constexpr unsigned at(unsigned row, unsigned piece) {
    return row * kBytes + piece * 16;
  }
};

// Whose part of the work it is.
struct ThisThread {
  static __device__ unsigned number() { return threadIdx.x; }
};

// The same for what is seldom done in a loop: the compiler would work out ahead of the loop what
// follows from the number, and keep that in registers.
struct ThisThreadInLoop {
  static __device__ unsigned number() {
    unsigned number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
  }
};

// Copies the rows of a matrix to shared memory, kRows at a time, with kThreads neighbouring
// threads, the first one's number a multiple of kThreads.  A row has kDim elements; its pieces lie
// there where Layout::at() says.
template <DType kDType, int kRows, int kDim, class Layout, int kThreads, class Thread = ThisThread>
class RowCopier {
 public:
  // Of `rows`, those of neighbouring tokens from `first` on.  Where they are not aligned, elements
  // are copied one by one, and not asynchronously.
  __device__ RowCopier(const InputRows<TokenStrides>& rows, const Storage<kDType>* first)
      : from_(first) {
    if (rows.aligned) from_ += first_row() * rows.stride.token + first_piece() * (16 / kSize);
  }

  // Starts copying the next kRows rows.  Those from `valid` on become zeros and are not read.
  // NOTE: takes `rows` again instead of keeping it: kernel parameters need no registers.
  __device__ void copy_next(unsigned shared, int valid, const InputRows<TokenStrides>& rows) {
    const long long stride = rows.stride.token;
    if (!rows.aligned) {
      copy_elements(shared, valid, stride);
      from_ += kRows * stride;
    } else if (valid >= kRows) {
      copy_pieces<true>(shared, valid, stride);
    } else {
      copy_pieces<false>(shared, valid, stride);
    }
  }

  // Goes past the next kRows rows.
  __device__ void skip(const InputRows<TokenStrides>& rows) { from_ += kRows * rows.stride.token; }

 private:
  static constexpr int kSize = size_of(kDType);
  static constexpr int kPieces = kDim * kSize / 16;  // of a row
  // Neighbouring threads copy neighbouring pieces; each thread keeps to its columns.
  static constexpr int kAcross = greatest_common_divisor(kPieces, kThreads);
  static constexpr int kStep = kThreads / kAcross;  // rows
  static constexpr int kSteps = (kRows + kStep - 1) / kStep;

  static __device__ int thread() { return static_cast<int>(Thread::number() % kThreads); }
  static __device__ int first_row() { return thread() / kAcross; }
  static __device__ int first_piece() { return thread() % kAcross; }

  template <bool kAllValid>
  __device__ void copy_pieces(unsigned shared, int valid, long long stride) {
    const unsigned first = shared + Layout::at(first_row(), first_piece());
    const Storage<kDType>* from = from_;
#pragma unroll
    for (int i = 0; i < kSteps; ++i, from += kStep * stride) {
      const int row = first_row() + i * kStep;
      if (kRows % kStep != 0 && row >= kRows) break;
#pragma unroll
      for (int c = 0; c < kPieces / kAcross; ++c) {
        const unsigned to = Layout::kIsLinear
                                ? first + Layout::at(i * kStep, c * kAcross)
                                : shared + Layout::at(row, first_piece() + c * kAcross);
        const auto* piece = from + c * kAcross * (16 / kSize);
        if constexpr (kAllValid) {
          copy_16(to, piece);
        } else {
          copy_16_or_zeros(to, piece, row < valid);
        }
      }
    }
    from_ = kRows % kStep == 0 ? from : from_ + kRows * stride;
  }

  __device__ void copy_elements(unsigned shared, int valid, long long stride) {
    for (int i = thread(); i < kRows * kDim; i += kThreads) {
      const int row = i / kDim;
      const int byte = i % kDim * kSize;
      const unsigned at = shared + Layout::at(row, byte / 16) + byte % 16;
      store_shared(at, row < valid ? from_[row * stride + i % kDim] : Storage<kDType>{});
    }
  }

  const Storage<kDType>* from_;
};

// Starts copying kBytes, a multiple of 16, between 16-byte aligned addresses, with threads as
// above.
template <int kBytes, int kThreads>
__device__ void copy_bytes(unsigned shared, const void* global) {
  const int first = threadIdx.x % kThreads * 16;
  const auto* from = static_cast<const char*>(global) + first;
#pragma unroll
  for (int i = 0; i < kBytes; i += kThreads * 16) {
    if (kBytes - i >= kThreads * 16 || first < kBytes - i) copy_16(shared + first + i, from + i);
  }
}

}  // namespace cubinery::dev
