#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deep_jit::str {

inline std::string join(const std::vector<std::string>& values, std::string_view separator = " ") {
  std::string joined;
  for (const std::string& value : values) {
    if (&value != values.data()) joined += separator;
    joined += value;
  }
  return joined;
}

}  // namespace deep_jit::str
