// From a problem and a GPU to what an operator can launch: its paths, their configurations, and the
// plan that says which of them runs for which size.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "cubinery/operator.h"
#include "results/choose.h"
#include "results/space.h"
#include "runtime/jit/get_kernels.h"
#include "runtime/jit/recorder.h"
#include "runtime/operator/path.h"
#include "runtime/operator/path_options.h"
#include "runtime/operator/plan.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery {

// What the library knows of an operator.  Specialised for each problem
// (docs/adding_an_operator.md):
//
//   using Runner                      what a launch is handed to: one configuration, loaded
//   static const std::vector<const Path<Problem, Runner>*>& paths()
//   static Sizes sizes(const Problem&)
//
// All sizes of a batch_invariant problem have one path.  Without more it is the first of paths()
// that runs there, or another one that the results of all sizes agree on.  With
//
//   static const std::vector<const Path<Problem, Runner>*>& invariant_paths()
//
// it is the first of these that runs there, whatever was measured: what is fastest for most sizes,
// which may lose for some, so that results would not agree on it.
//
// Beside its list of fields, Fields<Problem> has two of their names:
//
//   static constexpr std::string_view kOutline[]
//                                     fields that decide what is fast
//   static constexpr std::string_view kNotForSpeed[]
//                                     fields that results do not name: features say what they mean
//                                     for speed, or they mean nothing
//
// The problem's namespace has normalised(problem): fields that the others leave without meaning at
// their defaults.
template <class Problem>
struct OperatorOf;

template <class Problem>
concept HasInvariantPaths = requires {
  OperatorOf<Problem>::invariant_paths();
};

template <class Problem>
using RunnerOf = typename OperatorOf<Problem>::Runner;
template <class Problem>
using PathOf = Path<Problem, RunnerOf<Problem>>;

// A plan and its configurations, loaded.  Immutable.
template <class Problem>
struct Loaded {
  Problem problem;
  Plan plan;
  std::vector<std::unique_ptr<const RunnerOf<Problem>>> runners;  // of plan.candidates

  const RunnerOf<Problem>& runner(const Point& at) const {
    return *runners[plan.cell(at).candidate];
  }
};

// What an operator shares.  Specialised where it keeps more.
template <class Problem>
struct OperatorState : Loaded<Problem> {};

// "key_dim=128;dtype=bf16;...": what results name of a problem.
template <class Problem>
std::string text_for_results(const Problem& problem) {
  std::string text;
  for (const FieldText& field : field_texts(normalised(problem))) {
    const auto& skipped = Fields<Problem>::kNotForSpeed;
    if (std::find(std::begin(skipped), std::end(skipped), field.name) != std::end(skipped))
      continue;
    if (!text.empty()) text += ';';
    text.append(field.name).append("=").append(field.value);
  }
  return text;
}

template <class Problem>
PathKernels path_kernels() {
  PathKernels kernels;
  for (const auto* path : OperatorOf<Problem>::paths()) {
    kernels.emplace(path->name(), path->kernels());
  }
  return kernels;
}

template <class Problem>
class Planner {
 public:
  using Values = std::vector<TunedValue>;
  using CandidatePtr = typename PathOf<Problem>::CandidatePtr;

  // `options`: Options::paths.  kInvalidArgument: problem.check() is not OK, or an option names a
  // path that there is not.  kUnsupported: no path computes the problem there; says why of each.
  static Result<Planner> create(const Problem& problem, const Target& target,
                                const std::vector<std::string>& options = {});

  // Without what it takes a context to know: the GPU's identity and the toolchain.
  Wanted wanted() const;

  TuningSpace space() const;

  // Measured results first, then the cost model.  `ladder` may be null: no results, for the reason
  // `why_not`.
  Plan plan(const Ladder* ladder, std::string_view why_not = "") const;

  // Every kernel of the default candidates, which are those of plans without results on any GPU of
  // the target's architecture, and of plans with these results on the GPUs of it that are known:
  // those that the results are of, and known_gpus().  A GPU with another number of multiprocessors
  // may get others from results.
  std::vector<KernelSpec> kernels(const KnownResults& known) const;

  // What one of its plans launches, compiled side by side where it has to be.  Errors of
  // Context::get().
  Result<Loaded<Problem>> load(const Context& context, Plan plan) const;

  // Of any path.  nullptr: the problem has no such configuration here.
  CandidatePtr find(const Values& values) const { return find(paths_, values); }

 private:
  using Paths = std::vector<const PathOf<Problem>*>;

  Planner(const Problem& problem, const Target& target) : problem_(problem), target_(target) {}

  // Without configurations.
  TuningSpace empty_space() const;

  // Of the paths that plans choose among; of the first alone where all sizes must agree in bits.
  std::vector<CandidatePtr> defaults() const;

  // OperatorOf<Problem>::invariant_paths(): the one that is taken here.  nullptr: there are none.
  const PathOf<Problem>* invariant_path() const;

  CandidatePtr find(const Paths& paths, const Values& values) const;

  // Those that are not there yet; where all of them are.
  static std::vector<std::size_t> add_kernels(const Candidate& candidate,
                                              std::vector<KernelSpec>* specs);

  Problem problem_;
  Target target_;
  Paths paths_;          // those that compute the problem
  Paths planned_paths_;  // those of them that plans choose among
};

template <class Problem>
Result<Planner<Problem>> Planner<Problem>::create(const Problem& problem, const Target& target,
                                                  const std::vector<std::string>& options) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const std::string_view op = Fields<Problem>::kName;
  std::vector<std::string_view> names;
  for (const auto* path : OperatorOf<Problem>::paths()) names.push_back(path->name());
  const Result<PathOptions> allowed = PathOptions::parse(op, names, options);
  if (!allowed) return allowed.error().clone();
  Planner planner(problem, target);
  std::vector<std::string> reasons;
  for (const auto* path : OperatorOf<Problem>::paths()) {
    std::optional<std::string> why_not = allowed->why_not(path->name());
    if (!why_not) why_not = path->why_not(problem, target);
    if (why_not) {
      reasons.push_back(std::string(path->name()) + ": " + *why_not);
    } else {
      planner.paths_.push_back(path);
    }
  }
  if (planner.paths_.empty()) return no_path(op, target, reasons);
  const PathOf<Problem>* const invariant = planner.invariant_path();
  planner.planned_paths_ =
      problem.batch_invariant && invariant != nullptr ? Paths{invariant} : planner.paths_;
  return planner;
}

template <class Problem>
Wanted Planner<Problem>::wanted() const {
  Wanted asked = wanted_of(empty_space());
  asked.usable = [here = *this](const Values& values) {
    return here.find(here.planned_paths_, values) != nullptr;
  };
  return asked;
}

template <class Problem>
TuningSpace Planner<Problem>::space() const {
  TuningSpace space = empty_space();
  for (const auto* path : planned_paths_) {
    for (const CandidatePtr& candidate : path->candidates(problem_, target_)) {
      space.configurations.push_back({candidate->values(), candidate->kernels()});
    }
  }
  return space;
}

template <class Problem>
Plan Planner<Problem>::plan(const Ladder* ladder, std::string_view why_not) const {
  const std::vector<CandidatePtr> few = defaults();
  return make_plan(OperatorOf<Problem>::sizes(problem_),
                   {.defaults = {few.begin(), few.end()},
                    .one_value_of_bits = problem_.batch_invariant,
                    .find = [this](const Values& values) { return find(values); }},
                   ladder, why_not);
}

template <class Problem>
std::vector<KernelSpec> Planner<Problem>::kernels(const KnownResults& known) const {
  std::vector<KernelSpec> specs;
  for (const CandidatePtr& candidate : defaults()) add_kernels(*candidate, &specs);
  Wanted asked = wanted();
  asked.gpu.arch = target_.arch.name();
  const auto results =
      std::make_shared<const std::vector<TuningResult>>(results_for(asked, known.results));
  if (results->empty()) return specs;
  for (const Toolchain& toolchain : toolchains_of(*results, known.templates)) {
    for (const GpuIdentity& gpu : gpus_of(target_.arch, *results)) {
      Planner there = *this;
      there.target_ = target_of(target_.arch, gpu);
      Wanted asked_there = there.wanted();
      asked_there.gpu = gpu;
      asked_there.toolchain = toolchain;
      const Ladder ladder(std::move(asked_there), results);
      for (const auto& candidate : there.plan(&ladder).candidates) {
        add_kernels(*candidate, &specs);
      }
    }
  }
  return specs;
}

template <class Problem>
Result<Loaded<Problem>> Planner<Problem>::load(const Context& context, Plan plan) const {
  std::vector<KernelSpec> specs;
  std::vector<std::vector<std::size_t>> places;  // in specs, of each candidate's kernels
  for (const auto& candidate : plan.candidates) {
    places.push_back(add_kernels(*candidate, &specs));
  }
  const Result<std::vector<Kernel>> loaded = get_kernels(context, specs);
  if (!loaded) return loaded.error().clone();
  Loaded<Problem> made{.problem = problem_, .plan = std::move(plan), .runners = {}};
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::vector<Kernel> kernels;
    for (const std::size_t place : places[i]) kernels.push_back((*loaded)[place]);
    // They all come from this problem's paths.
    const auto& candidate =
        static_cast<const CandidateOf<RunnerOf<Problem>>&>(*made.plan.candidates[i]);
    made.runners.push_back(candidate.runner(std::move(kernels)));
  }
  return made;
}

template <class Problem>
auto Planner<Problem>::find(const Paths& paths, const Values& values) const -> CandidatePtr {
  const auto is_it = [&](const auto* path) { return path->name() == path_of(values); };
  const auto path = std::find_if(paths.begin(), paths.end(), is_it);
  return path == paths.end() ? nullptr : (*path)->find(problem_, values, target_);
}

template <class Problem>
const PathOf<Problem>* Planner<Problem>::invariant_path() const {
  if constexpr (HasInvariantPaths<Problem>) {
    for (const auto* path : OperatorOf<Problem>::invariant_paths()) {
      if (std::find(paths_.begin(), paths_.end(), path) != paths_.end()) return path;
    }
  }
  return nullptr;
}

template <class Problem>
TuningSpace Planner<Problem>::empty_space() const {
  const auto& outline = Fields<Problem>::kOutline;
  const PathOf<Problem>* const invariant = invariant_path();
  return {.op = Fields<Problem>::kName,
          .problem = text_for_results(problem_),
          .configurations = {},
          .defaults = text_for_results(Problem{}),
          .outline = {std::begin(outline), std::end(outline)},
          .batch_invariant = problem_.batch_invariant,
          .agreed_path = std::string(invariant != nullptr ? invariant->name() : "")};
}

template <class Problem>
auto Planner<Problem>::defaults() const -> std::vector<CandidatePtr> {
  std::vector<CandidatePtr> all;
  for (const auto* path : planned_paths_) {
    for (CandidatePtr& candidate : path->defaults(problem_, target_)) {
      all.push_back(std::move(candidate));
    }
    if (problem_.batch_invariant) break;
  }
  return all;
}

template <class Problem>
std::vector<std::size_t> Planner<Problem>::add_kernels(const Candidate& candidate,
                                                       std::vector<KernelSpec>* specs) {
  std::vector<std::size_t> places;
  for (KernelSpec& spec : candidate.kernels()) {
    const auto same = [&](const KernelSpec& other) { return other.canonical == spec.canonical; };
    const auto found = std::find_if(specs->begin(), specs->end(), same);
    places.push_back(static_cast<std::size_t>(found - specs->begin()));
    if (found == specs->end()) specs->push_back(std::move(spec));
  }
  return places;
}

// Options::record: a problem that a path computes, and what came of it.
template <class Problem, class T>
void record(const Context& context, const Problem& problem, const Result<T>& made) {
  if (!is_recording(context) || !can_be_had(made)) return;
  record_problem(context, Fields<Problem>::kName, to_json(problem));
}

// An operator for a problem on a context's GPU: kernels by the context's results, or by the cost
// model.  When one that results chose cannot be had, the cost model chooses.
template <class Problem>
Result<Loaded<Problem>> load_operator(const Context& context, const Problem& problem) {
  const Result<Planner<Problem>> planner =
      Planner<Problem>::create(problem, target_of(context), path_options(context));
  if (!planner) return planner.error().clone();
  const Ladder ladder = ladder_of(context, planner->wanted(), path_kernels<Problem>());
  Plan plan = planner->plan(&ladder);
  const bool uses_results = plan.uses_results;
  Result<Loaded<Problem>> loaded = planner->load(context, std::move(plan));
  if (!loaded && uses_results) {
    const std::string why_not = without_results(context, Fields<Problem>::kName, loaded.error());
    loaded = planner->load(context, planner->plan(nullptr, why_not));
  }
  record(context, problem, loaded);
  return loaded;
}

// The same with one configuration of the caller's choice for all sizes, launched as on `target`.
// kInvalidKey: the problem has no such configuration.
template <class Problem>
Result<Loaded<Problem>> load_configuration(const Context& context, const Problem& problem,
                                           const Target& target,
                                           const std::vector<TunedValue>& values) {
  const Result<Planner<Problem>> planner = Planner<Problem>::create(problem, target);
  if (!planner) return planner.error().clone();
  const auto candidate = planner->find(values);
  if (!candidate) {
    return Status(Code::kInvalidKey,
                  std::string(Fields<Problem>::kName) +
                      ": not a configuration of the problem: " + to_text(values));
  }
  return planner->load(context, one_choice_plan(candidate));
}

// What choices depend on, of a launch of this size.
template <class Problem>
Shape features_at(const Problem& problem, const Point& at) {
  return OperatorOf<Problem>::sizes(problem).features(at);
}

// Problem::kernels(): with these results in place of those inside the library.  `paths`:
// Options::paths.  Errors of Planner::create(); kInvalidArgument: no such architecture.
template <class Problem>
Result<std::vector<KernelSpec>> kernels_for(const Problem& problem, std::string_view arch,
                                            const KnownResults& known,
                                            const std::vector<std::string>& paths = {}) {
  const Result<Arch> found = check_arch(Fields<Problem>::kName, arch);
  if (!found) return found.error().clone();
  const Result<Planner<Problem>> planner =
      Planner<Problem>::create(problem, typical_target(*found), paths);
  if (!planner) return planner.error().clone();
  return planner->kernels(known);
}

// Results of an operator, of all problems, as prewarming needs them: inside the library, and those
// that an operator of this context may use.
template <class Problem>
const KnownResults& embedded_known_results() {
  static const KnownResults kKnown =
      known_results_inside(Fields<Problem>::kName, path_kernels<Problem>());
  return kKnown;
}
template <class Problem>
KnownResults known_results(const Context& context) {
  return known_results_of(context, Fields<Problem>::kName, path_kernels<Problem>());
}

// Every kernel that an operator for the problem may launch on any GPU of the context's
// architecture.  `known`: known_results().
template <class Problem>
Result<std::vector<KernelSpec>> kernels_in(const Context& context, const Problem& problem,
                                           const KnownResults& known) {
  const Result<Planner<Problem>> planner =
      Planner<Problem>::create(problem, target_of(context), path_options(context));
  if (!planner) return planner.error().clone();
  return planner->kernels(known);
}

// All of them in the cache.
template <class Problem>
Result<std::vector<CompiledKernel>> compile_operator(const Context& context,
                                                     const Problem& problem) {
  const auto specs = kernels_in(context, problem, known_results<Problem>(context));
  if (!specs) return specs.error().clone();
  Result<std::vector<CompiledKernel>> made = compile_kernels(context, *specs);
  record(context, problem, made);
  return made;
}

}  // namespace cubinery
