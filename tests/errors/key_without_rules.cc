// error: why_invalid
#include <tuple>

#include "cubinery/fields.h"

struct Key {
  int rows = 1;
};

template <>
struct cubinery::Fields<Key> {
  static constexpr const char* kName = "ruleless";
  static constexpr auto kList = std::tuple{fixed<&Key::rows>()};
};

auto parsed() { return cubinery::from_json<Key>("{}"); }
