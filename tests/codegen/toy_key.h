// A small key with one field of each kind, for tests of the field table.
#pragma once

#include <tuple>

#include "cubinery/fields.h"

namespace toy {

enum class Colour : int { kRed = 1, kDeepBlue = 7 };

struct ToyKey {
  int rows = 4;
  cubinery::DType dtype = cubinery::DType::kF32;
  Colour colour = Colour::kRed;
  bool fast = false;  // tuned
  int warps = 2;      // tuned
};

struct ToyParams {
  void* p;
  long long n;
};

constexpr const char* why_invalid(const ToyKey& key) {
  if (key.rows < 1) return "rows must be positive";
  if (key.fast && key.warps > 4) return "fast needs at most 4 warps";
  return nullptr;
}

constexpr int threads(const ToyKey& key) { return key.warps * 32; }
constexpr int shared_bytes(const ToyKey& key) { return key.rows * 16; }

}  // namespace toy

template <>
struct cubinery::EnumNames<toy::Colour> {
  static constexpr const char* kType = "toy::Colour";
  static constexpr std::array<EnumName<toy::Colour>, 2> kNames{
      {{toy::Colour::kRed, "kRed", "red"}, {toy::Colour::kDeepBlue, "kDeepBlue", "deep_blue"}}};
};

template <>
struct cubinery::Fields<toy::ToyKey> {
  static constexpr const char* kName = "toy";
  using Params = toy::ToyParams;
  static constexpr auto kList = std::tuple{
      fixed<&toy::ToyKey::rows>(),         fixed<&toy::ToyKey::dtype>(),
      fixed<&toy::ToyKey::colour>(),       tuned<&toy::ToyKey::fast>(false, true),
      tuned<&toy::ToyKey::warps>(1, 4, 8),
  };
};
