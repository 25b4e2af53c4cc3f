#include "harness/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cubinery {

std::vector<void*> addresses(GdnMemory* memory) {
  std::vector<void*> all;
  for (std::vector<std::byte>& piece : *memory) all.push_back(piece.data());
  return all;
}

std::string text_of_byte(std::string_view name, std::size_t at, std::size_t piece_bytes) {
  return fmt::format("{}, byte {} of {}", name,
                     static_cast<std::ptrdiff_t>(at) - std::ptrdiff_t{kGuardBytes},
                     piece_bytes - 2 * kGuardBytes);
}

std::string first_difference(const GdnMemory& a, const GdnMemory& b,
                             std::string_view (*name)(std::size_t piece)) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const auto [at, other] = std::mismatch(a[i].begin(), a[i].end(), b[i].begin(), b[i].end());
    return text_of_byte(name(i), static_cast<std::size_t>(at - a[i].begin()), a[i].size());
  }
  return "";
}

Result<GdnDeviceMemory> GdnDeviceMemory::allocate(const std::shared_ptr<const Device>& device,
                                                  const GdnMemory& like) {
  GdnDeviceMemory memory;
  CUBINERY_RETURN_IF_ERROR(memory.resize(device, like));
  return memory;
}

Status GdnDeviceMemory::resize(const std::shared_ptr<const Device>& device, const GdnMemory& like) {
  pieces_.resize(like.size());
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (pieces_[i].bytes() == like[i].size()) continue;
    pieces_[i] = {};
    if (like[i].empty()) continue;
    Result<DeviceMemory> allocated = DeviceMemory::allocate(device, like[i].size());
    if (!allocated) return std::move(allocated).error();
    pieces_[i] = *std::move(allocated);
  }
  return {};
}

std::vector<void*> GdnDeviceMemory::addresses() const {
  std::vector<void*> all;
  for (const DeviceMemory& piece : pieces_) all.push_back(piece.data());
  return all;
}

Status GdnDeviceMemory::upload(const GdnMemory& from) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!from[i].empty()) CUBINERY_RETURN_IF_ERROR(pieces_[i].upload(from[i]));
  }
  return {};
}

Result<std::vector<std::byte>> GdnDeviceMemory::download(std::size_t piece) const {
  std::vector<std::byte> bytes(pieces_[piece].bytes());
  CUBINERY_RETURN_IF_ERROR(pieces_[piece].download(bytes));
  return bytes;
}

Result<GdnMemory> GdnDeviceMemory::download() const {
  GdnMemory to;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Result<std::vector<std::byte>> piece = download(i);
    if (!piece) return std::move(piece).error();
    to.push_back(*std::move(piece));
  }
  return to;
}

}  // namespace cubinery
