#include "tests/gpu/cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "runtime/gdn/decode/paths.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery::test {
namespace {

using gdn::DecodeArgs;
using gdn::DecodeProblem;
using gdn::PrefillArgs;
using gdn::PrefillProblem;

CaseOptions token_by_token(CaseOptions options) {
  options.chunk_size = 0;
  return options;
}

CaseOptions without_outputs(CaseOptions options) {
  options.has_outputs = false;
  return options;
}

CaseOptions token_by_token(CaseOptions options, const gdn::VerifyProblem& problem) {
  options.parents = parents_of(problem);
  return token_by_token(std::move(options));
}

template <class Args>
void slice_states(Args* args, bool pool, std::int64_t first, std::int64_t count) {
  slice(&args->state_indices, 0, first, count);
  slice(&args->state_out_indices, 0, first, count);
  if (pool) return;
  slice(&args->state, 0, first, count);
  slice(&args->state_out, 0, first, count);
}

bool is_pool(const PrefillProblem& problem) {
  return problem.states.location == gdn::StateLocation::kPool;
}

template <class Problem>
Problem small() {
  Problem problem;
  problem.heads.q = problem.heads.k = 2;
  problem.heads.v = 4;
  problem.key_dim = problem.value_dim = 64;
  return problem;
}

}  // namespace

std::vector<DType> decode_state_dtypes() {
  const Target target = target_of(gpu().context());
  std::vector<DType> dtypes;
  for (const DType dtype : gdn::kStateFloats) {
    const DecodeProblem problem{.states = {.dtype = dtype}};
    if (!gdn::decode_portable().why_not(problem, target)) dtypes.push_back(dtype);
  }
  return dtypes;
}

std::vector<Tensor*> token_tensors(PrefillArgs* args) {
  return {&args->q, &args->k, &args->v, &args->g, &args->beta, &args->o};
}

void slice(Tensor* tensor, std::size_t dimension, std::int64_t first, std::int64_t count) {
  if (!tensor->present()) return;
  tensor->data = static_cast<std::byte*>(tensor->data) +
                 first * tensor->strides[dimension] * size_of(tensor->dtype);
  tensor->shape[dimension] = count;
}

PrefillCase::PrefillCase(const GdnProblem& problem, const CaseShape& shape,
                         const CaseOptions& options)
    : GdnCase(problem, shape, options),
      device_(GdnDeviceMemory::allocate(gpu().device(), memory()).value()) {
  upload();
}

GdnArgs PrefillCase::args(std::int64_t first, std::int64_t count) const {
  GdnArgs args = this->args();
  slice_states(&args, is_pool(problem()), first, count);
  slice(&args.checkpoint_offsets, 0, first, count);
  slice(&args.checkpoint_slots, 0, first, count);
  if (problem().varlen) {
    slice(&args.cu_seqlens, 0, first, count + 1);
    slice(&args.checkpoint_cu_starts, 0, first, count + 1);
    return args;
  }
  for (Tensor* tensor : token_tensors(&args)) slice(tensor, 0, first, count);
  slice(&args.parents, 0, first, count);
  if (args.checkpoint_offsets.present()) return args;
  const std::int64_t kept = checkpoints_of(problem(), length(0));
  slice(&args.checkpoints, 0, first * kept, count * kept);
  return args;
}

gdn::PrefillSize PrefillCase::size(const PrefillArgs& args) const {
  const std::int64_t tokens = args.q.shape[token_dimension()];
  if (problem().varlen) return {.tokens = tokens, .sequences = args.cu_seqlens.shape[0] - 1};
  return {.tokens = args.q.shape[0] * tokens, .sequences = args.q.shape[0]};
}

DecodeCase::DecodeCase(const DecodeProblem& problem, std::int64_t batch, CaseOptions options)
    : PrefillCase(as_prefill(problem), uniform(batch, 1), token_by_token(std::move(options))),
      problem_(problem) {}

DecodeArgs DecodeCase::args(std::int64_t first, std::int64_t count) const {
  DecodeArgs args = this->args();
  for (Tensor* tensor :
       {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.o, &args.z, &args.x}) {
    slice(tensor, 0, first, count);
  }
  const bool pool = is_pool(PrefillCase::problem());
  slice_states(&args, pool, first, count);
  if (pool) return args;
  slice(&args.conv_state, 0, first, count);
  slice(&args.conv_state_out, 0, first, count);
  return args;
}

VerifyCase::VerifyCase(const gdn::VerifyProblem& problem, const CaseShape& shape,
                       CaseOptions options)
    : PrefillCase(as_prefill(problem), shape, token_by_token(std::move(options), problem)),
      problem_(problem) {}

CommitCase::CommitCase(const gdn::CommitProblem& problem, const CaseShape& shape,
                       CaseOptions options)
    : PrefillCase(as_prefill(problem), shape, without_outputs(token_by_token(std::move(options)))),
      problem_(problem) {}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool same_head(const GdnCase& c, std::int64_t n, std::int64_t h, const GdnMemory& a,
               const GdnCase& other, std::int64_t m, const GdnMemory& b) {
  const auto same = [&](const GdnCase::Place& x, const GdnCase::Place& y, std::size_t bytes) {
    return std::memcmp(a[x.piece].data() + x.byte, b[y.piece].data() + y.byte, bytes) == 0;
  };
  const std::size_t row_bytes = idx(c.problem().value_dim * size_of(c.problem().output_dtype));
  for (std::int64_t t = 0; t < c.length(n); ++t) {
    if (!same(c.row_at(TensorId::kO, n, t, h), other.row_at(TensorId::kO, m, t, h), row_bytes)) {
      return false;
    }
  }
  const Row row = c.row(n);
  return !row.writes() ||
         same(c.matrix_at(c.target(), row.write, h),
              other.matrix_at(other.target(), other.row(m).write, h), c.matrix_bytes());
}

bool same_conv_state(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b) {
  const GdnProblem& p = c.problem();
  const Row row = c.row(n);
  if (!p.conv.is_there() || !row.writes()) return true;
  for (std::int64_t channel = 0; channel < conv_split(p).end; ++channel) {
    for (std::int64_t i = 0; i < conv_columns(p); ++i) {
      const auto place = c.conv_state_at(c.conv_target(), row.write, channel, i);
      if (std::memcmp(a[place.piece].data() + place.byte, b[place.piece].data() + place.byte,
                      idx(size_of(p.conv.state_dtype))) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool same_sequence(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b) {
  if (!same_conv_state(c, n, a, b)) return false;
  for (std::int64_t h = 0; h < c.problem().heads.count(); ++h) {
    if (!same_head(c, n, h, a, b)) return false;
  }
  return true;
}

bool is_close(const GdnCase& c, std::int64_t n, const GdnMemory& a, const GdnMemory& b) {
  float largest = 0, difference = 0;
  for (std::int64_t t = 0; t < c.length(n); ++t) {
    for (std::int64_t h = 0; h < c.problem().heads.count(); ++h) {
      const auto x = c.row_values(a, TensorId::kO, n, t, h, c.problem().value_dim);
      const auto y = c.row_values(b, TensorId::kO, n, t, h, c.problem().value_dim);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return false;
        largest = std::max(largest, std::abs(x[i]));
        difference = std::max(difference, std::abs(x[i] - y[i]));
      }
    }
  }
  return difference <= 0.01f * largest;
}

std::size_t workspace_bytes(const PrefillCase& one, const gdn::Prefill& prefill,
                            const PrefillArgs& args) {
  return prefill.workspace_bytes(one.size(args));
}

std::size_t workspace_bytes(const DecodeCase&, const gdn::Decode&, const DecodeArgs&) { return 0; }

std::size_t workspace_bytes(const VerifyCase&, const gdn::Verify&, const gdn::VerifyArgs&) {
  return 0;
}

std::size_t workspace_bytes(const CommitCase&, const gdn::Commit&, const gdn::CommitArgs&) {
  return 0;
}

Status launch(const gdn::Prefill& prefill, Stream stream, const PrefillArgs& args,
              const DeviceBuffer& workspace) {
  return prefill.launch(stream, args, {.data = workspace.data(), .bytes = workspace.bytes()});
}

Status launch(const gdn::Decode& decode, Stream stream, const DecodeArgs& args,
              const DeviceBuffer&) {
  return decode.launch(stream, args);
}

Status launch(const gdn::Verify& verify, Stream stream, const gdn::VerifyArgs& args,
              const DeviceBuffer&) {
  return verify.launch(stream, args);
}

Status launch(const gdn::Commit& commit, Stream stream, const gdn::CommitArgs& args,
              const DeviceBuffer&) {
  return commit.launch(stream, args);
}

void expect_good(const GdnCase& one, const GdnMemory& after, const std::string& what) {
  const GdnVerdict verdict = one.check(after);
  const CaseOptions& options = one.options();
  std::string errors = text(verdict.errors.o, "o") + "\n" + text(verdict.errors.state, "state");
  if (verdict.errors.checkpoints.magnitude != 0) {
    errors += "\n" + text(verdict.errors.checkpoints, "checkpoints");
  }
  INFO(what << "\nseed " << options.seed << ", gates " << static_cast<int>(options.gates)
            << ", placement " << static_cast<int>(options.placement)
            << "\nagain: CUBINERY_TEST_SEED=" << seed() << " <this program> '" << test_name()
            << "'\n"
            << errors);
  CHECK(verdict.errors.o.ok());
  CHECK(verdict.errors.state.ok());
  CHECK(verdict.errors.checkpoints.ok());
  CHECK(verdict.fault == "");  // guard bands included
}

void expect_good(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                 const CaseShape& shape) {
  expect_good(prefill_case, run(prefill_case, prefill),
              "problem " + prefill_case.problem().to_json() + "\n" + shape.text());
}

CaseShape cycle(std::int64_t requests, std::initializer_list<std::int64_t> lengths) {
  CaseShape shape{.lead = 2, .tail = 1};
  while (std::ssize(shape.lengths) < requests) {
    shape.lengths.push_back(lengths.begin()[shape.lengths.size() % lengths.size()]);
  }
  return shape;
}

std::string text(const Deviation& deviation, const char* name) {
  const Deviation::Index& index = deviation.index;
  std::ostringstream out;
  out.precision(9);
  out << name << ": worst at request " << index[0] << ", head " << index[1] << ", "
      << (std::string_view(name) == "o" ? "token " : "span ") << index[2] << ", element ("
      << index[3] << ", " << index[4] << "): " << deviation.actual << ", reference "
      << deviation.expected << ", error " << deviation.worst << " = "
      << 100 * deviation.worst / deviation.budget() << " % of the budget (naive error "
      << deviation.naive << ")";
  return out.str();
}

DecodeProblem small_problem() { return small<DecodeProblem>(); }

PrefillProblem small_prefill() { return small<PrefillProblem>(); }

gdn::VerifyProblem small_verify() {
  auto problem = small<gdn::VerifyProblem>();
  problem.draft_tokens = 16;
  return problem;
}

gdn::CommitProblem small_commit() {
  auto problem = small<gdn::CommitProblem>();
  problem.draft_tokens = 16;
  return problem;
}

PrefillProblem small_varlen() {
  PrefillProblem problem = small_prefill();
  problem.varlen = true;
  return problem;
}

}  // namespace cubinery::test
