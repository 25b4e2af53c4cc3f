#include "benchmarks/sweep.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

namespace cubinery::bench {

Wanted::Wanted(const Arguments& arguments) : values(split(arguments.get("--config"))) {
  if (arguments.has("--sweep")) printed = 10;
  if (arguments.has("--all-configs")) printed = std::numeric_limits<std::size_t>::max();
}

std::vector<Configuration> with_values(const std::vector<Configuration>& all,
                                       const std::vector<std::string>& values) {
  std::vector<Configuration> found = all;
  const auto lacks = [&](const Configuration& configuration, const std::string& wanted) {
    return std::none_of(
        configuration.values.begin(), configuration.values.end(),
        [&](const TunedValue& own) { return own.name + "=" + own.value == wanted; });
  };
  std::erase_if(found, [&](const Configuration& configuration) {
    return std::any_of(values.begin(), values.end(),
                       [&](const std::string& wanted) { return lacks(configuration, wanted); });
  });
  if (found.empty()) throw std::runtime_error("no configuration has the values of --config");
  return found;
}

void print_sweep(const std::vector<Configuration>& all, const std::vector<Timing>& times,
                 const std::string& chosen, double floor_us, std::size_t printed) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return times[a].median < times[b].median; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const Timing& ms = times[order[rank]];
    const std::string text = to_text(all[order[rank]].values);
    const bool is_chosen = text == chosen;
    if (rank >= printed && rank + 1 < order.size() && !is_chosen) continue;
    std::printf("%c%4zu %9.2f us  %8.2f-%-8.2f %5.1f %%  %s\n", is_chosen ? '*' : ' ', rank + 1,
                1e3 * ms.median, 1e3 * ms.p10, 1e3 * ms.p90, 0.1 * floor_us / ms.median,
                text.c_str());
  }
  std::fflush(stdout);
}

}  // namespace cubinery::bench
