// The launches of a row: operands on the device in several sets, and what the row's operator does
// with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "benchmarks/launch_check.h"
#include "benchmarks/rows.h"
#include "harness/workload.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery::bench {

// `reference`: the prefill with these operands (HarnessOf).
inline GdnOperands operands_of(const Gpu& gpu, const GdnProblem& reference,
                               std::vector<std::int64_t> lengths, const RowData& data,
                               std::size_t workspace_bytes = 0, bool separate_out = false) {
  return GdnOperands::create(gpu.device(), reference,
                             {.lengths = std::move(lengths),
                              .data = data.data,
                              .scale = data.scale,
                              .workspace_bytes = workspace_bytes,
                              .l2_bytes = gpu_identity(gpu.context()).value().l2_bytes,
                              .separate_out = separate_out})
      .value();
}

template <class Problem>
class RowLaunches {
 public:
  using Operator = typename Problem::Operator;
  using Harness = HarnessOf<Problem>;

  // With room for operators that need up to `workspace_bytes`.
  RowLaunches(const Gpu& gpu, const Problem& problem, const Row& row, std::size_t workspace_bytes)
      : operands_(operands_of(gpu, Harness::reference(problem), lengths_of(row), data_of(row),
                              workspace_bytes, Harness::separate_out(problem))),
        enable_pdl_(row.value("enable_pdl", false)) {}

  const GdnOperands& operands() const { return operands_; }
  int sets() const { return operands_.sets(); }
  // That a launch moves at least.
  double bytes() const { return static_cast<double>(operands_.bytes()); }
  Errors errors(const Operator& prepared, const Gpu& gpu) const {
    return launch_errors(prepared, gpu, operands_);
  }
  Status launch(const Operator& prepared, Stream stream, int set) const {
    if constexpr (std::is_same_v<Operator, gdn::Decode>) {
      return prepared.launch(stream, args(set));
    } else {
      return cubinery::launch(prepared, stream, operands_, set);
    }
  }
  gdn::DecodeArgs args(int set) const {
    gdn::DecodeArgs args = as_decode(operands_.args(set));
    args.enable_pdl = enable_pdl_;
    return args;
  }

 private:
  GdnOperands operands_;
  bool enable_pdl_;  // launches may overlap the one in front
};

// All layers of a model in one launch; the operands of each are a set.
template <>
class RowLaunches<gdn::CommitProblem> {
 public:
  RowLaunches(const Gpu& gpu, const gdn::CommitProblem& problem, const Row& row, std::size_t);

  int sets() const { return 1; }
  double bytes() const { return bytes_; }
  // Of one layer, all of whose tokens are accepted.
  Errors errors(const gdn::Commit& commit, const Gpu& gpu) const {
    return launch_errors(commit, gpu, operands_.front());
  }
  Status launch(const gdn::Commit& commit, Stream stream, int) const {
    return commit.launch(stream, args_);
  }

 private:
  std::vector<GdnOperands> operands_;
  std::vector<DeviceBuffer> buffers_;  // the table and the counts
  gdn::CommitArgs args_;
  double bytes_ = 0;
};

template <>
class RowLaunches<gdn::ConvProblem> {
 public:
  RowLaunches(const Gpu& gpu, const gdn::ConvProblem& problem, const Row& row, std::size_t)
      : operands_(ConvOperands::create(gpu.device(), problem,
                                       {.lengths = lengths_of(row),
                                        .l2_bytes = gpu_identity(gpu.context()).value().l2_bytes})
                      .value()) {}

  int sets() const { return operands_.sets(); }
  double bytes() const { return static_cast<double>(operands_.bytes()); }
  Errors errors(const gdn::Conv&, const Gpu&) const { return {}; }
  Status launch(const gdn::Conv& conv, Stream stream, int set) const {
    return conv.launch(stream, operands_.args(set));
  }

 private:
  ConvOperands operands_;
};

// What a launch of the row runs, and why.
Choice choice_of(const gdn::Decode& decode, const Row& row);
Choice choice_of(const gdn::Prefill& prefill, const Row& row);
Choice choice_of(const gdn::Verify& verify, const Row& row);
Choice choice_of(const gdn::Commit& commit, const Row& row);
Choice choice_of(const gdn::Conv& conv, const Row& row);

}  // namespace cubinery::bench
