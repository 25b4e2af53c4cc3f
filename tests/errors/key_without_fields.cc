// error: Fields<Key>
#include "cubinery/fields.h"

struct Key {
  int rows = 1;
};

std::string text() { return cubinery::canonical(Key{}); }
