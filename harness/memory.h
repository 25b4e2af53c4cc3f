// The memory of one small launch, on the host and on a device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/tensors.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {

// A piece for each TensorId, the tensor between two guard bands.  Empty where a tensor is absent or
// lies in the piece of another.
using GdnMemory = std::vector<std::vector<std::byte>>;

constexpr std::size_t kGuardBytes = 4096;
// Of guard bands and of all that a launch is to write: NaN in every float type, -1 in every integer
// type.
constexpr std::byte kPoison{0xff};

// Where each piece begins.
std::vector<void*> addresses(GdnMemory* memory);

// The tensor of a piece.
template <class Args = GdnArgs>
std::string_view tensor_name(std::size_t piece) {
  return info_of<Args>(static_cast<TensorId>(piece)).name;
}

// "state, byte 20 of 4096": byte `at` of a piece of so many bytes, counted from the end of the
// guard band in front.
std::string text_of_byte(std::string_view name, std::size_t at, std::size_t piece_bytes);

// The first byte that differs, as text_of_byte() has it.  Empty when there is none.
std::string first_difference(const GdnMemory& a, const GdnMemory& b,
                             std::string_view (*name)(std::size_t piece) = tensor_name<>);

// The same on a device.  Each piece is an allocation of its own, so that memory checkers see what
// leaves it.
class GdnDeviceMemory {
 public:
  // Pieces as large as those of `like`, not initialised.
  static Result<GdnDeviceMemory> allocate(const std::shared_ptr<const Device>& device,
                                          const GdnMemory& like);
  // Likewise; pieces that have their size stay.
  Status resize(const std::shared_ptr<const Device>& device, const GdnMemory& like);

  std::vector<void*> addresses() const;
  Status upload(const GdnMemory& from) const;
  Result<std::vector<std::byte>> download(std::size_t piece) const;
  Result<GdnMemory> download() const;

 private:
  std::vector<DeviceMemory> pieces_;
};

}  // namespace cubinery
