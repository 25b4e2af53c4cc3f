// The shapes of prefill that are measured again and again, with the times of others:
// prefill_rows.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/prefill_workload.h"

namespace cubinery::bench {

struct ListedRow {
  PrefillRow row{};
  // "peers_ms": by version, measured by us in the same way; "best_published_ms" and whose it is,
  // "best_published".  Each where known.
  nlohmann::ordered_json others = nlohmann::ordered_json::object();
};

// `set`: "all" that the file lists, "headline" (those with peers_ms), or "gates": one shape, which
// the file need not list, with every distribution of the gates.
// Throws std::runtime_error for a file that is none or a set that is not one of these.
std::vector<ListedRow> prefill_rows(const std::string& path, const std::string& set);

}  // namespace cubinery::bench
