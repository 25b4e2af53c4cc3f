// error: a key field is an integer, a bool or an enumeration
#include <tuple>

#include "cubinery/fields.h"

struct Key {
  float scale = 1;
};

template <>
struct cubinery::Fields<Key> {
  static constexpr const char* kName = "float_field";
  static constexpr auto kList = std::tuple{fixed<&Key::scale>()};
};

std::string text() { return cubinery::canonical(Key{}); }
