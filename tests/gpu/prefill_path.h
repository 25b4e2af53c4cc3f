// Prefills by a path that a test names.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/tuning.h"
#include "tests/gpu/launches.h"

namespace cubinery::test {

// By a path that needs wgmma.  Absent, and the test skipped, where the GPU has none.
inline std::optional<gdn::Prefill> by_path(const gdn::PrefillProblem& problem,
                                           std::string_view path) {
  if (!has_wgmma(*parse_arch(gpu().context().arch()))) {
    skip_test("no wgmma");
    return std::nullopt;
  }
  const std::vector<Configuration> all = configurations_of(problem);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Configuration& one) {
    return path_of(one.values) == path;
  });
  REQUIRE(found != all.end());
  const Target target = target_of(gpu().context());
  return gdn::Prefill::create(gpu().context(), problem, target, found->values).value();
}

inline void run_by_path(const gdn::PrefillProblem& problem, std::string_view path,
                        const CaseShape& shape, CaseOptions options = {}) {
  const std::optional<gdn::Prefill> prefill = by_path(problem, path);
  if (!prefill) return;
  options.seed += seed();
  expect_good(PrefillCase(problem, shape, options), *prefill, shape);
}

// With an element of cu_seqlens that cannot be: all outputs are NaN, nothing else is touched.
inline void run_malformed(const gdn::PrefillProblem& problem, std::string_view path,
                          const CaseShape& shape, std::int64_t element) {
  const std::optional<gdn::Prefill> prefill = by_path(problem, path);
  if (!prefill) return;
  for (const std::int64_t bad : {-1, 1 << 30}) {
    PrefillCase c(problem, shape, {.seed = seed()});
    store_integer(problem.cu_seqlens_dtype, c.at(c.vector_at(TensorId::kCuSeqlens, element)), bad);
    REQUIRE(c.row(0).kind == RowKind::kInvalid);
    expect_good(c, *prefill, shape);
  }
}

}  // namespace cubinery::test
