// The bytes of a case on the device: brought back and compared there, in the order of a stream, so
// that a hundred thousand launches need no copies to the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/memory.h"
#include "tests/gpu/gpu_test.h"

namespace cubinery::test {

// Two launches of kernels of its own around each launch of an operator.  Failures of CUDA outside
// renew() and compare() throw.
class DeviceBits {
 public:
  // `pieces`: where a case lies; `before` and `after`: its bytes before a launch and after one.
  DeviceBits(const std::vector<void*>& pieces, const GdnMemory& before, const GdnMemory& after);

  // Brings all bytes back to `before`.
  Status renew(Stream stream) const;
  // Compares all bytes to `after`.  `launch`: which one this is; times the pieces below 2^32.
  Status compare(Stream stream, std::uint32_t launch) const;
  // "launch 7: state, byte 20 of 4096": of the first launch that left other bytes the first of
  // these, as first_difference() has it; empty when there was none.  Requires: the streams are
  // done.
  std::string first_difference() const;

 private:
  struct Piece {  // as the kernels have it
    void* at;
    const void* before;
    const void* after;
    std::uint64_t bytes;
  };

  Launch launch() const;

  Kernel renew_, compare_;
  GdnDeviceMemory before_, after_;
  std::vector<Piece> pieces_;
  DeviceBuffer table_;  // pieces_
  DeviceBuffer first_;  // (launch * pieces + piece) * 2^32 + byte, or all ones
};

}  // namespace cubinery::test
