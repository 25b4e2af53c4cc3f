// GdnCases of prefill, decode and verify on the device: their launches, and the checks of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "cubinery/tuning.h"
#include "harness/case.h"
#include "harness/operators.h"
#include "tests/gpu/gpu_test.h"

namespace cubinery::test {

// What decode keeps states in on this GPU.
std::vector<DType> decode_state_dtypes();

// q, k, v, g, beta and o.
std::vector<Tensor*> token_tensors(gdn::PrefillArgs* args);
// Rows first ... first + count - 1 of dimension `dimension` alone.
void slice(Tensor* tensor, std::size_t dimension, std::int64_t first, std::int64_t count);

class PrefillCase : public GdnCase {
 public:
  using Operator = gdn::Prefill;
  using Args = gdn::PrefillArgs;

  PrefillCase(const GdnProblem& problem, const CaseShape& shape, const CaseOptions& options = {});

  GdnArgs args() const { return GdnCase::args(addresses()); }
  // The same for sequences first ... first + count - 1 alone.
  GdnArgs args(std::int64_t first, std::int64_t count) const;
  gdn::PrefillSize size(const gdn::PrefillArgs& args) const;

  // Sends all bytes (again): outputs become NaN.
  void upload() const { device_.upload(memory()).value(); }
  GdnMemory download() const { return device_.download().value(); }
  // Of the pieces on the device.
  std::vector<void*> addresses() const { return device_.addresses(); }

 private:
  GdnDeviceMemory device_;
};

// The prefill of packed sequences of one token each.
class DecodeCase : public PrefillCase {
 public:
  using Operator = gdn::Decode;
  using Args = gdn::DecodeArgs;

  DecodeCase(const gdn::DecodeProblem& problem, std::int64_t batch, CaseOptions options = {});

  const gdn::DecodeProblem& problem() const { return problem_; }
  gdn::DecodeArgs args() const { return as_decode(PrefillCase::args()); }
  // The same for requests first ... first + count - 1 alone.
  gdn::DecodeArgs args(std::int64_t first, std::int64_t count) const;

 private:
  gdn::DecodeProblem problem_;
};

// One layer, all of whose tokens are accepted; o stays as it was.
class CommitCase : public PrefillCase {
 public:
  using Operator = gdn::Commit;
  using Args = gdn::CommitArgs;

  CommitCase(const gdn::CommitProblem& problem, const CaseShape& shape, CaseOptions options = {});

  const gdn::CommitProblem& problem() const { return problem_; }
  gdn::CommitArgs args() const { return as_commit(PrefillCase::args()); }
  // The same for requests first ... first + count - 1 alone.
  gdn::CommitArgs args(std::int64_t first, std::int64_t count) const {
    return as_commit(PrefillCase::args(first, count));
  }

 private:
  gdn::CommitProblem problem_;
};

// Dense or packed; with StoredStates::kEvery dense, states and all: state_out is what a prefill
// keeps as checkpoints.
class VerifyCase : public PrefillCase {
 public:
  using Operator = gdn::Verify;
  using Args = gdn::VerifyArgs;

  VerifyCase(const gdn::VerifyProblem& problem, const CaseShape& shape, CaseOptions options = {});

  const gdn::VerifyProblem& problem() const { return problem_; }
  gdn::VerifyArgs args() const { return as_verify(problem_, PrefillCase::args()); }
  // The same for requests first ... first + count - 1 alone.
  gdn::VerifyArgs args(std::int64_t first, std::int64_t count) const {
    return as_verify(problem_, PrefillCase::args(first, count));
  }

 private:
  gdn::VerifyProblem problem_;
};

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b);

// Whether a head of a sequence has the same bits of o and of its new state in both: heads of the
// same case, or of cases whose sequences n and m have the same length.
bool same_head(const GdnCase& c, std::int64_t n, std::int64_t h, const GdnMemory& a,
               const GdnCase& other, std::int64_t m, const GdnMemory& b);
inline bool same_head(const GdnCase& c, std::int64_t n, std::int64_t h, const GdnMemory& a,
                      const GdnMemory& b) {
  return same_head(c, n, h, a, c, n, b);
}
// Of a sequence; true where there is no convolution.
bool same_conv_state(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b);
bool same_sequence(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b);

// Whether outputs of a sequence differ by no more than rounding does, a hundredth of the largest.
bool is_close(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b);

// What a prefill's launch with these arguments asks for; nothing for the others.
std::size_t workspace_bytes(const PrefillCase& one, const gdn::Prefill& prefill,
                            const gdn::PrefillArgs& args);
std::size_t workspace_bytes(const DecodeCase& one, const gdn::Decode& decode,
                            const gdn::DecodeArgs& args);
std::size_t workspace_bytes(const VerifyCase& one, const gdn::Verify& verify,
                            const gdn::VerifyArgs& args);
std::size_t workspace_bytes(const CommitCase& one, const gdn::Commit& commit,
                            const gdn::CommitArgs& args);
Status launch(const gdn::Prefill& prefill, Stream stream, const gdn::PrefillArgs& args,
              const DeviceBuffer& workspace);
Status launch(const gdn::Decode& decode, Stream stream, const gdn::DecodeArgs& args,
              const DeviceBuffer& workspace);
Status launch(const gdn::Verify& verify, Stream stream, const gdn::VerifyArgs& args,
              const DeviceBuffer& workspace);
Status launch(const gdn::Commit& commit, Stream stream, const gdn::CommitArgs& args,
              const DeviceBuffer& workspace);

// Launches of a case on a stream of its own, with a workspace of exactly the size that those with
// `args` ask for, all NaN.  The case and the operator must outlive it.
template <class Case>
class Session {
 public:
  using Operator = typename Case::Operator;
  using Args = typename Case::Args;

  Session(const Case& one, const Operator& prepared, const Args& args)
      : one_(one),
        prepared_(prepared),
        stream_(make_stream(gpu())),
        workspace_(gpu(), workspace_bytes(one, prepared, args)) {}

  const DeviceStream& stream() const { return stream_; }
  const DeviceBuffer& workspace() const { return workspace_; }
  Status launch(const Args& args) const {
    return test::launch(prepared_, stream_.get(), args, workspace_);
  }
  // Waits.  Fails the test case when the guard bands of the workspace are damaged.
  GdnMemory finish() const {
    stream_.synchronize().value();
    CHECK(workspace_.guards_intact());
    return one_.download();
  }

 private:
  const Case& one_;
  const Operator& prepared_;
  DeviceStream stream_;
  DeviceBuffer workspace_;
};

// One launch on a fresh copy of the case's data.
template <class Case>
GdnMemory run(const Case& one, const typename Case::Operator& prepared,
              const typename Case::Args& args) {
  const Session<Case> session(one, prepared, args);
  one.upload();
  const Status status = session.launch(args);
  INFO(status.message() << "; problem " << one.problem().to_json());
  REQUIRE(status.ok());
  return session.finish();
}
template <class Case>
GdnMemory run(const Case& one, const typename Case::Operator& prepared) {
  return run(one, prepared, one.args());
}

// The operator on each path that computes the problem, by its default configurations.
std::vector<gdn::Prefill> on_every_path(const gdn::PrefillProblem& problem);
std::vector<gdn::Verify> on_every_path(const gdn::VerifyProblem& problem);
std::vector<gdn::Commit> on_every_path(const gdn::CommitProblem& problem);

// Packed requests of as many tokens as `lengths` says, over and over, with a gap on both sides.
CaseShape cycle(std::int64_t requests, std::initializer_list<std::int64_t> lengths);

// Fails the running test case unless `after` is good.  `what`, the options and the seed are what is
// needed to run the case again.
void expect_good(const GdnCase& one, const GdnMemory& after, const std::string& what);
// Runs the case and checks it.
void expect_good(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                 const CaseShape& shape);

// The operator with what its plan has for these sizes alone, which is what it launches for others
// too: a plan may have another kernel for each size, and their compilation is what tests take their
// time for.
gdn::Decode prepare(const gdn::DecodeProblem& problem, const std::vector<std::int64_t>& batches);
gdn::Prefill prepare(const gdn::PrefillProblem& problem,
                     const std::vector<gdn::PrefillSize>& sizes);
gdn::Conv prepare(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes);
// Compiles that, on any thread; prepare() reports errors.
void prewarm(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes);
// Of packed tokens that are as many as these, and what is between and around them.
gdn::PrefillSize size_of(const CaseShape& shape);

// The rows of a table to run: all that hold a pair of values of two columns which no row before
// them does.  All rows with CUBINERY_TEST_FULL (scripts/gpu_tests.py --full).
std::vector<std::size_t> cover(const std::vector<std::vector<std::string>>& rows);
// The values of a problem's fields as a row, and what else a launch is made of.
std::vector<std::string> row_of(const std::string& json, const std::vector<std::string>& more = {});
// Those with every pair of values of two fields which any of them has.
template <class Problem>
std::vector<Problem> cover(const std::vector<Problem>& problems) {
  std::vector<std::vector<std::string>> rows;
  for (const Problem& problem : problems) rows.push_back(row_of(problem.to_json()));
  std::vector<Problem> chosen;
  for (const std::size_t i : cover(rows)) chosen.push_back(problems[i]);
  return chosen;
}
// The same of configurations, whose values are the fields.
std::vector<std::size_t> cover(const std::vector<Configuration>& configurations);

// Runs the operator on random data and checks results and surroundings; a failure prints all that
// is needed to run only this case.  Of verify and commit each path, by each of its default
// configurations.
void run_case(const gdn::DecodeProblem& problem, std::int64_t batch, CaseOptions options = {});
void run_case(const gdn::PrefillProblem& problem, const CaseShape& shape, CaseOptions options = {});
void run_case(const gdn::VerifyProblem& problem, const CaseShape& shape, CaseOptions options = {});
void run_case(const gdn::CommitProblem& problem, const CaseShape& shape, CaseOptions options = {});

// Sweeps run a cover of pairs of what their launches are made of: the problem's fields, its size
// and the kernel.  So each value of an option is seen with each size and kernel, and with each
// value of each other option that the sweep has it with.
void run_cases(const std::vector<gdn::DecodeProblem>& problems, std::int64_t batch,
               const CaseOptions& options = {});
void run_cases(const std::vector<gdn::PrefillProblem>& problems, const CaseShape& shape,
               const CaseOptions& options = {});
void run_cases(const std::vector<gdn::VerifyProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options = {});
void run_cases(const std::vector<gdn::CommitProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options = {});
// With a small batch, or with one that is large enough for the kernel of large batches.
void run_both_kernels(const std::vector<gdn::DecodeProblem>& problems,
                      const CaseOptions& options = {});

// Where a tensor is worst, for people; `name` is the tensor's.
std::string text(const Deviation& deviation, const char* name);

// Lengths around every boundary of a chunk or of a tile of it.
inline const std::vector<std::int64_t> kBoundaryLengths{
    0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257};

// Small problems to vary: 2 key heads, 4 value heads, 64 x 64.
gdn::DecodeProblem small_problem();
gdn::PrefillProblem small_prefill();  // dense
gdn::PrefillProblem small_varlen();
gdn::VerifyProblem small_verify();  // dense, of up to 16 tokens
gdn::CommitProblem small_commit();  // likewise

}  // namespace cubinery::test
