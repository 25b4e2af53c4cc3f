// Results inside the library: of GPUs that we measured.
#pragma once

#include <string_view>

namespace cubinery {

// The text of tuner/measured/*.results.jsonl.
std::string_view embedded_results();

}  // namespace cubinery
