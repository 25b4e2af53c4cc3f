// Records as JSON values, for those who print them in another way than as lines.  Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "results/records.h"

namespace cubinery {

// What to_line() prints.
nlohmann::ordered_json json_of(const Setting& setting);
nlohmann::ordered_json json_of(const Measurement& measurement);
nlohmann::ordered_json json_of(const TuningResult& result);

}  // namespace cubinery
