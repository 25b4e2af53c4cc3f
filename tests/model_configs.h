// The config.json of models that are published.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "tests/catch.h"

namespace cubinery::test {

// "Qwen3.5-27B".
inline std::string config_path(const std::string& model) {
  return CUBINERY_TEST_DIR "/data/models/" + model + "/config.json";
}

inline std::string config_of(const std::string& model) {
  std::ifstream file(config_path(model));
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace cubinery::test
