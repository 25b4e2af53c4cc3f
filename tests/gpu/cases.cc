#include "tests/gpu/cases.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"
#include "runtime/operator/operator.h"
#include "runtime/operator/tuning_context.h"
#include "tests/pairwise.h"

namespace cubinery::test {
namespace {

using gdn::DecodeArgs;
using gdn::DecodeProblem;
using gdn::PrefillArgs;
using gdn::PrefillProblem;

// What context().prepare(problem) would launch, and its planner.
template <class Problem>
struct Planned {
  Planner<Problem> planner;
  Plan plan;
};
template <class Problem>
Result<Planned<Problem>> planned(const Problem& problem) {
  const Context& context = gpu().context();
  Result<Planner<Problem>> planner =
      Planner<Problem>::create(problem, target_of(context), path_options(context));
  if (!planner) return std::move(planner).error();
  const Ladder ladder = ladder_of(context, planner->wanted(), path_kernels<Problem>());
  Plan plan = planner->plan(&ladder);
  return Planned<Problem>{*std::move(planner), std::move(plan)};
}

// Without the candidates that none of these sizes has; other sizes get the first of the rest.
void keep_sizes(const std::vector<Point>& sizes, Plan* plan) {
  std::vector<std::uint16_t> kept;
  const auto place = [&](std::uint16_t candidate) {
    return std::find(kept.begin(), kept.end(), candidate) - kept.begin();
  };
  for (const Point& at : sizes) {
    const std::uint16_t candidate = plan->cell(at).candidate;
    if (place(candidate) == std::ssize(kept)) kept.push_back(candidate);
  }
  Candidates candidates;
  for (const std::uint16_t candidate : kept) candidates.push_back(plan->candidates[candidate]);
  for (Plan::Cell& cell : plan->cells) {
    const auto found = place(cell.candidate);
    cell.candidate = static_cast<std::uint16_t>(found == std::ssize(kept) ? 0 : found);
  }
  plan->candidates = std::move(candidates);
}

template <class Problem, class Size>
Result<typename Problem::Operator> try_prepare(const Problem& problem,
                                               const std::vector<Size>& sizes) {
  Result<Planned<Problem>> found = planned(problem);
  if (!found) return std::move(found).error();
  std::vector<Point> points;
  for (const Size& size : sizes) points.push_back(point_of(problem, size));
  keep_sizes(points, &found->plan);
  return made(found->planner.load(gpu().context(), std::move(found->plan)));
}

template <class Problem, class Size>
typename Problem::Operator prepare_at(const Problem& problem, const std::vector<Size>& sizes) {
  Result<typename Problem::Operator> prepared = try_prepare(problem, sizes);
  if (!prepared) fail_to_prepare(problem.to_json(), prepared.error());
  return *prepared;
}

// The first power of two that runs another kernel than a batch of one; 64 when none does.
std::int64_t large_batch(const DecodeProblem& problem) {
  const Result<Planned<DecodeProblem>> found = planned(problem);
  if (!found) return 64;  // prepare() reports it
  const auto candidate = [&](std::int64_t batch) {
    return found->plan.cell(point_of(problem, batch)).candidate;
  };
  for (std::int64_t batch = 2; batch <= 4096; batch *= 2) {
    if (candidate(batch) != candidate(1)) return batch;
  }
  return 64;
}

CaseOptions token_by_token(CaseOptions options) {
  options.chunk_size = 0;
  return options;
}

CaseOptions without_outputs(CaseOptions options) {
  options.has_outputs = false;
  return options;
}

// A default configuration of a path, and a name that those of other problems share.
struct Default {
  std::string name;
  std::vector<TunedValue> values;
};
template <class Problem>
std::vector<Default> defaults_of(const Problem& problem) {
  const Target target = target_of(gpu().context());
  std::vector<Default> all;
  for (const auto* path : OperatorOf<Problem>::paths()) {
    if (path->why_not(problem, target)) continue;
    // Where there is one of what others have two of, it is the last.
    const auto defaults = path->defaults(problem, target);
    std::size_t behind = defaults.size();
    for (const auto& candidate : defaults) {
      all.push_back({std::string(path->name()) + std::to_string(--behind), candidate->values()});
    }
  }
  return all;
}

template <class Problem>
auto by_values(const Problem& problem, const std::vector<TunedValue>& values) {
  return Problem::Operator::create(gpu().context(), problem, target_of(gpu().context()), values);
}

// The operator on each path that computes the problem, by its default configurations.
template <class Problem>
auto by_defaults(const Problem& problem) {
  const std::vector<Default> all = defaults_of(problem);
  on_all_processors(all.size(), [&](std::size_t i) { (void)by_values(problem, all[i].values); });
  std::vector<typename Problem::Operator> made;
  for (const Default& one : all) made.push_back(by_values(problem, one.values).value());
  return made;
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

// The case of an operator.
template <class Problem>
using CaseOf =
    std::conditional_t<std::is_same_v<Problem, gdn::VerifyProblem>, VerifyCase, CommitCase>;

// Runs the case by each of these, and checks it.
template <class Problem>
void run_by(const Problem& problem, const CaseShape& shape, CaseOptions options,
            const std::vector<typename Problem::Operator>& operators) {
  options.seed += seed();
  if constexpr (requires { problem.round_each_token; }) {
    options.round_each_token = problem.round_each_token;
  }
  const CaseOf<Problem> one(problem, shape, options);
  for (const auto& prepared : operators) {
    const auto choice = prepared.choice({.requests = std::ssize(shape.lengths)});
    expect_good(one, run(one, prepared),
                choice.configuration + ", problem " + problem.to_json() + "\n" + shape.text());
  }
}

// Pairs of the problem's fields, its shape and its configuration, of those by default.
template <class Problem>
void run_cover(const std::vector<Problem>& problems, const std::vector<CaseShape>& shapes,
               const CaseOptions& options) {
  struct Launched {
    const Problem& problem;
    const CaseShape& shape;
    std::vector<TunedValue> values;
  };
  std::vector<Launched> all, chosen;
  std::vector<std::vector<std::string>> rows;
  for (const Problem& problem : problems) {
    for (const Default& one : defaults_of(problem)) {
      for (const CaseShape& shape : shapes) {
        all.push_back({problem, shape, one.values});
        rows.push_back(row_of(problem.to_json(), {one.name, shape.text()}));
      }
    }
  }
  for (const std::size_t i : cover(rows)) chosen.push_back(all[i]);
  on_all_processors(chosen.size(),
                    [&](std::size_t i) { (void)by_values(chosen[i].problem, chosen[i].values); });
  for (const auto& [problem, shape, values] : chosen) {
    run_by(problem, shape, options, {by_values(problem, values).value()});
  }
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
  if (problem().varlen) {
    slice(&args.cu_seqlens, 0, first, count + 1);
    slice(&args.checkpoint_cu_starts, 0, first, count + 1);
    return args;
  }
  for (Tensor* tensor : token_tensors(&args)) slice(tensor, 0, first, count);
  slice(&args.parents, 0, first, count);
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

gdn::Decode prepare(const DecodeProblem& problem, const std::vector<std::int64_t>& batches) {
  return prepare_at(problem, batches);
}
gdn::Prefill prepare(const PrefillProblem& problem, const std::vector<gdn::PrefillSize>& sizes) {
  return prepare_at(problem, sizes);
}
gdn::Conv prepare(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes) {
  return prepare_at(problem, sizes);
}
void prewarm(const gdn::ConvProblem& problem, const std::vector<gdn::ConvSize>& sizes) {
  (void)try_prepare(problem, sizes);
}

gdn::PrefillSize size_of(const CaseShape& shape) {
  return {.tokens =
              std::accumulate(shape.lengths.begin(), shape.lengths.end(), shape.lead + shape.tail),
          .sequences = std::ssize(shape.lengths)};
}

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

void run_case(const DecodeProblem& problem, std::int64_t batch, CaseOptions options) {
  options.seed += seed();
  const gdn::Decode decode = prepare(problem, {batch});
  const DecodeCase decode_case(problem, batch, options);
  expect_good(decode_case, run(decode_case, decode),
              "problem " + problem.to_json() + "\nkernel " + decode.kernel(batch).info().canonical +
                  "\nbatch " + std::to_string(batch));
}

void run_case(const PrefillProblem& problem, const CaseShape& shape, CaseOptions options) {
  options.seed += seed();
  const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
  expect_good(PrefillCase(problem, shape, options), prefill, shape);
}

std::vector<gdn::Verify> on_every_path(const gdn::VerifyProblem& problem) {
  return by_defaults(problem);
}

std::vector<gdn::Commit> on_every_path(const gdn::CommitProblem& problem) {
  return by_defaults(problem);
}

void run_case(const gdn::VerifyProblem& problem, const CaseShape& shape, CaseOptions options) {
  run_by(problem, shape, options, on_every_path(problem));
}

void run_case(const gdn::CommitProblem& problem, const CaseShape& shape, CaseOptions options) {
  run_by(problem, shape, options, on_every_path(problem));
}

std::vector<std::size_t> cover(const std::vector<std::vector<std::string>>& rows) {
  if (std::getenv("CUBINERY_TEST_FULL") == nullptr) return pairwise(rows);
  std::vector<std::size_t> all(rows.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::vector<std::size_t> cover(const std::vector<Configuration>& configurations) {
  std::vector<std::vector<std::string>> rows;
  for (const Configuration& configuration : configurations) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const TunedValue& value : configuration.values) row.push_back(value.value);
  }
  return cover(rows);
}

std::vector<std::string> row_of(const std::string& json, const std::vector<std::string>& more) {
  std::vector<std::string> row = more;
  std::istringstream fields(json);
  for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
  return row;
}

void run_cases(const std::vector<DecodeProblem>& problems, std::int64_t batch,
               const CaseOptions& options) {
  const std::vector<DecodeProblem> chosen = cover(problems);
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i], std::vector{batch});  // run_case() reports errors
  });
  for (const DecodeProblem& problem : chosen) run_case(problem, batch, options);
}

void run_cases(const std::vector<PrefillProblem>& problems, const CaseShape& shape,
               const CaseOptions& options) {
  const std::vector<PrefillProblem> chosen = cover(problems);
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i], std::vector{size_of(shape)});  // run_case() reports errors
  });
  for (const PrefillProblem& problem : chosen) run_case(problem, shape, options);
}

void run_cases(const std::vector<gdn::VerifyProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options) {
  run_cover(problems, shapes, options);
}

void run_cases(const std::vector<gdn::CommitProblem>& problems,
               const std::vector<CaseShape>& shapes, const CaseOptions& options) {
  run_cover(problems, shapes, options);
}

void run_both_kernels(const std::vector<DecodeProblem>& problems, const CaseOptions& options) {
  std::vector<std::vector<std::string>> rows;
  for (const DecodeProblem& problem : problems) {
    for (const char* const batch : {"few", "many"}) {
      rows.push_back(row_of(problem.to_json(), {batch}));
    }
  }
  struct Chosen {
    const DecodeProblem& problem;
    std::int64_t batch;
  };
  std::vector<Chosen> chosen;
  for (const std::size_t i : cover(rows)) {
    const DecodeProblem& problem = problems[i / 2];
    chosen.push_back({problem, i % 2 == 0 ? 3 : large_batch(problem)});
  }
  on_all_processors(chosen.size(), [&](std::size_t i) {
    (void)try_prepare(chosen[i].problem, std::vector{chosen[i].batch});
  });
  for (const auto& [problem, batch] : chosen) run_case(problem, batch, options);
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
