// error: a field table has a name twice
#include <tuple>

#include "cubinery/fields.h"

struct States {
  cubinery::DType dtype = cubinery::DType::kF32;
};

struct Key {
  cubinery::DType dtype = cubinery::DType::kF16;
  States states{};
};

template <>
struct cubinery::Fields<Key> {
  static constexpr const char* kName = "twice";
  static constexpr auto kList =
      std::tuple{fixed<&Key::dtype>(), fixed<&Key::states, &States::dtype>()};
};

std::string text() { return cubinery::canonical(Key{}); }
