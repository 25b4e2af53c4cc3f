// A store in memory, for tests that look behind its back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/store.h"
#include "tests/cache/mem_env.h"
#include "tests/cache/sample.h"

namespace cubinery::test {

inline constexpr std::int64_t kSecond = 1'000'000'000;
inline const std::string kDir = "/cache";
inline const std::string kLayer = "/layer";

// A store in memory with one read-only layer, whose entries another store publishes.
struct MemCache {
  std::shared_ptr<MemEnv> env = std::make_shared<MemEnv>();
  Log log;
  Store store{{.dir = kDir, .layers = {kLayer}, .log = log.callback()}, env};
  Store layer{{.dir = kLayer}, env};
};

inline bool publishes(Store& store, const Entry& entry) { return store.publish(entry).has_value(); }

}  // namespace cubinery::test
