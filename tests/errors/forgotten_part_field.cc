// error: the field table must list every member of the key
#include <tuple>

#include "cubinery/fields.h"

struct Size {
  int rows = 1;
  int cols = 1;
};

struct Key {
  Size size{};
};

template <>
struct cubinery::Fields<Key> {
  static constexpr const char* kName = "forgotten";
  static constexpr auto kList = std::tuple{fixed<&Key::size, &Size::rows>()};
};

std::string text() { return cubinery::canonical(Key{}); }
