// From results to a choice: the ladder.  Pure functions.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/tuning.h"
#include "results/records.h"

namespace cubinery {

// What compiles the kernels of each path.
struct Toolchain {
  std::string nvrtc;  // empty: results of any version will do
  std::map<std::string, std::string, std::less<>>
      templates;  // path -> code_digest() of its kernels
};

// What kernels are wanted for.  wanted_of() a space leaves out what it takes a context to know.
struct Wanted {
  std::string op;
  // TuningSpace's members of the same names.  An empty problem: all results of the op.
  std::string problem{};
  std::string defaults{};
  std::vector<std::string> outline{};
  bool batch_invariant = false;
  GpuIdentity gpu{};
  Toolchain toolchain{};
  // Whether a configuration can be used: it is one of the space, and fits the GPU.  Empty: any.
  std::function<bool(const std::vector<TunedValue>&)> usable{};

  // A field that one side does not name has its default there.
  enum class Match { kNone, kOutline, kSame };
  Match match(std::string_view their_problem) const;
  // Whether a result may be on the ladder.
  bool includes(std::string_view their_op, std::string_view their_problem) const {
    return their_op == op && (problem.empty() || match(their_problem) != Match::kNone);
  }
};

Wanted wanted_of(const TuningSpace& space);

// Results that may be taken, best rung first.  With Wanted::batch_invariant their
// configurations agree in the fields that change bits: those that differ from the first of the best
// rung are left out.
class Ladder {
 public:
  using Results = std::shared_ptr<const std::vector<TuningResult>>;

  // `results`: in the order of precedence (the user's before the library's); shared, since there
  // are many, and a ladder for each GPU that may take them.
  Ladder(Wanted wanted, Results results);
  Ladder(Wanted wanted, std::vector<TuningResult> results)
      : Ladder(std::move(wanted),
               std::make_shared<const std::vector<TuningResult>>(std::move(results))) {}
  Ladder(Ladder&&) = default;
  Ladder& operator=(Ladder&&) = default;

  // The result that is taken for a shape.
  struct Nearest {
    const TuningResult* result = nullptr;  // of this object's
    Rung rung = Rung::kDefault;
    bool is_here = false;     // the shape itself, or its bucket
    bool is_similar = false;  // of a problem that differs in some fields
    std::size_t among = 0;    // results that were as good but for their shape
    bool operator==(const Nearest&) const = default;
  };
  // The ladder for one shape.  nullopt: none comes near; why_none() says why.
  //
  // Within a rung the nearest result counts, up to a distance of kMaxDistance, on ties that of the
  // problem that differs in fewer fields, then the earlier.
  // One of this GPU is at no distance from the shapes of its bucket.
  // Sizes in kPerSm count parallel work, on which most depends: nearer in those is nearer.
  // On another GPU of the architecture results for the problem itself come before those for similar
  // ones, and a size that counts parallel work stands for as much work per multiprocessor: names in
  // kPerSm are scaled by the ratio of SM counts.  Stale results go through the same rungs once
  // more, below all others: all of them are kStale.
  std::optional<Nearest> nearest(const Shape& features) const;
  // What that result says to launch.
  const std::vector<TunedValue>& configuration(const Nearest& nearest) const;
  std::string why(const Nearest& nearest) const;
  std::string why_none() const;

  // Every configuration of the results, each once.
  std::vector<std::vector<TunedValue>> configurations() const;

 private:
  // Whose a result is; kOwn is both kExact and kNearestShape.
  enum class Kin : int { kOwn, kSimilar, kOtherGpu, kOtherGpuSimilar };
  // A step of the ladder, the best least.
  struct Step {
    bool is_stale;
    Kin kin;
    auto operator<=>(const Step&) const = default;
  };
  struct Coordinate {
    std::string_view name;
    double log = 0;
    double weight = 1;         // to compare distances
    std::uint64_t bucket = 0;  // size_in_bucket()
  };
  // A shape as a point: its sizes, those that weigh most first.
  using Point = std::vector<Coordinate>;
  static double first_log(const Point& point) { return point.empty() ? 0 : point.front().log; }
  struct Ranked {
    const TuningResult* result;
    Step step;
    std::size_t differing;  // fields of a similar problem, else 0
    Point point;            // of its features, as large for our GPU as they were for its own
  };
  struct StepResults {
    Step step;
    std::vector<const Ranked*> results;  // of ranked_, by the first size
  };
  class Search;

  std::optional<Kin> kin_of(const GpuIdentity& gpu, Wanted::Match match) const;
  std::optional<std::string> stale(const TuningResult& result) const;
  Decision decision_of(const TuningResult& result) const {
    return cubinery::decision_of(result, wanted_.batch_invariant);
  }
  void count(std::string reason);
  void keep_agreeing();
  void drop_repeated();
  void make_steps();
  static Point point_of(const Shape& features, double per_sm);
  static std::optional<Nearest> nearest(const StepResults& of_step, const Point& point);

  Wanted wanted_;
  Results results_;
  std::vector<Ranked> ranked_;  // of results_
  std::vector<StepResults> steps_;
  // Why how many results were left out, or count below all others.
  std::vector<std::pair<std::string, int>> reasons_;
};

// The results that a ladder for what is wanted may take, on any GPU of its architecture.
std::vector<TuningResult> results_for(const Wanted& wanted,
                                      const std::vector<TuningResult>& results);
// The GPUs of an architecture that are known: those that the results are of, and known_gpus().
std::vector<GpuIdentity> gpus_of(const Arch& arch, const std::vector<TuningResult>& results);
// With these templates, of each compiler that changes which results are stale: any one, and, where
// the results are of several, each of them.
std::vector<Toolchain> toolchains_of(
    const std::vector<TuningResult>& results,
    const std::map<std::string, std::string, std::less<>>& templates);

inline constexpr double kMaxDistance = 3;  // in all sizes together, a factor of eight
inline constexpr std::string_view kPerSm[] = {"states"};

// Why a decision of a result is not for this toolchain, in words; nullopt when it is.
std::optional<std::string> stale(const Setting& setting, const Decision& decision,
                                 const Toolchain& ours);

}  // namespace cubinery
