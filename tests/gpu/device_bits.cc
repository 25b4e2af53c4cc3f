#include "tests/gpu/device_bits.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

namespace cubinery::test {
namespace {

// A row of blocks for each piece.
constexpr const char* kSource = R"(
struct Piece {
  unsigned char* at;
  const unsigned char* before;
  const unsigned char* after;
  unsigned long long bytes;
};

// Calls each(byte) for the bytes of this thread.
template <class Each>
__device__ void for_bytes(const Piece& piece, Each each) {
  const unsigned step = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < piece.bytes; i += step) each(i);
}

extern "C" __global__ void renew(const Piece* pieces) {
  const Piece piece = pieces[blockIdx.y];
  for_bytes(piece, [&](unsigned i) { piece.at[i] = piece.before[i]; });
}

extern "C" __global__ void compare(const Piece* pieces, unsigned launch,
                                   unsigned long long* first) {
  const Piece piece = pieces[blockIdx.y];
  for_bytes(piece, [&](unsigned i) {
    if (piece.at[i] == piece.after[i]) return;
    const unsigned long long where = launch * gridDim.y + blockIdx.y;
    atomicMin(first, where << 32 | i);
  });
}
)";
constexpr unsigned kBlocks = 32, kThreads = 256;

Kernel kernel_of(const char* name) {
  return gpu().context().get({.name = name, .source = kSource}).value();
}

GdnDeviceMemory on_device(const GdnMemory& memory) {
  GdnDeviceMemory copy = GdnDeviceMemory::allocate(gpu().device(), memory).value();
  copy.upload(memory).value();
  return copy;
}

}  // namespace

DeviceBits::DeviceBits(const std::vector<void*>& pieces, const GdnMemory& before,
                       const GdnMemory& after)
    : renew_(kernel_of("renew")),
      compare_(kernel_of("compare")),
      before_(on_device(before)),
      after_(on_device(after)),
      table_(gpu(), pieces.size() * sizeof(Piece)),
      first_(gpu(), sizeof(std::uint64_t)) {
  const std::vector<void*> old = before_.addresses(), expected = after_.addresses();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    REQUIRE(before[i].size() == after[i].size());
    pieces_.push_back({pieces[i], old[i], expected[i], before[i].size()});
  }
  table_.upload(std::as_bytes(std::span(pieces_)));
}

Launch DeviceBits::launch() const {
  return {.grid = {kBlocks, static_cast<unsigned>(pieces_.size())}, .block = {kThreads}};
}

Status DeviceBits::renew(Stream stream) const {
  return renew_.launch(stream, launch(), static_cast<const void*>(table_.data()));
}

Status DeviceBits::compare(Stream stream, std::uint32_t number) const {
  return compare_.launch(stream, launch(), static_cast<const void*>(table_.data()), number,
                         first_.data());
}

std::string DeviceBits::first_difference() const {
  std::uint64_t first = 0;
  const std::vector<std::byte> bytes = first_.download();
  std::memcpy(&first, bytes.data(), sizeof first);
  if (first == ~std::uint64_t{0}) return "";
  const std::uint64_t where = first >> 32, piece = where % pieces_.size();
  return fmt::format("launch {}: {}", where / pieces_.size(),
                     text_of_byte(tensor_name<>(piece), first & 0xffffffff, pieces_[piece].bytes));
}

}  // namespace cubinery::test
