// From results to a choice: the ladder.  Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/tuning.h"
#include "tuner/choose/records.h"

namespace cubinery {

// Who asks.
struct Question {
  std::string op;
  std::string fixed;
  std::vector<std::string> outline;  // TuningSpace::outline
  GpuIdentity gpu;
  Toolchain toolchain;  // nvrtc empty: results of any version
  // Whether a configuration can be used: it is one of the space, and fits the GPU.  Empty: any.
  std::function<bool(const std::vector<TunedValue>&)> usable;
};

// The results that may answer, best rung first.  Their configurations agree in the fields that
// change bits: those that differ from the first of the best rung are left out.
class Answers {
 public:
  // `results`: in the order of precedence (the user's before the library's); they must outlive
  // this.
  Answers(const Question& question, const std::vector<TuningResult>& results);

  struct Answer {
    const TuningResult* result;  // of the vector that the constructor got
    Rung rung;
    std::string why;
  };
  // The result that answers for a shape.
  struct Nearest {
    const TuningResult* result = nullptr;
    Rung rung = Rung::kDefault;
    bool is_here = false;   // the shape itself, or its bucket
    std::size_t among = 0;  // results that were as good but for their shape
    bool operator==(const Nearest&) const = default;
  };
  // The ladder for one shape.  nullopt: none comes near; unanswered() says why.
  //
  // Within a rung the nearest result counts, up to a distance of kMaxDistance, on ties the earlier.
  // Sizes in kPerSm count parallel work, on which most depends: nearer in those is nearer.
  // On another GPU of the architecture results for the problem itself come before those for similar
  // ones, and a size that counts parallel work stands for as much work per multiprocessor: names in
  // kPerSm are scaled by the ratio of SM counts.
  std::optional<Answer> find(const Shape& features) const;
  // find() in two steps, for those who ask for many shapes.
  std::optional<Nearest> nearest(const Shape& features) const;
  std::string why(const Nearest& nearest) const;
  std::string unanswered() const;

  // Every configuration that find() can return, each once.
  std::vector<std::vector<TunedValue>> configurations() const;

 private:
  // Steps of the ladder; kOwn is both kExact and kNearestShape.
  enum class Step : int { kOwn, kSimilar, kOtherGpu, kOtherGpuSimilar };
  // A shape as a point: the logarithms of its sizes, sorted by their names.
  struct Point {
    std::string names;  // "length;states;"
    std::vector<double> logs;
    std::vector<double> weights;      // of each size, to compare distances
    std::vector<std::size_t> bucket;  // of each size
  };
  struct Ranked {
    const TuningResult* result;
    Step step;
    Point point;  // of its features, as large for our GPU as they were for its own
  };

  static std::optional<Step> step_of(const Question& question, const Setting& setting);
  void count(std::string reason);
  void keep_agreeing();
  void drop_repeated();
  static Point point_of(const Shape& features, double per_sm);
  std::optional<Nearest> nearest(Step step, const Point& point) const;

  GpuIdentity gpu_;
  std::string fixed_;
  std::vector<Ranked> ranked_;
  std::vector<std::pair<std::string, int>> reasons_;  // why how many results were left out
};

inline constexpr double kMaxDistance = 3;  // in all sizes together, a factor of eight
inline constexpr std::string_view kPerSm[] = {"states"};

// Whether results for a problem with the fixed text `theirs` may answer for one with `ours`: it is
// the same, or agrees in all fields of the outline, if there are any.
bool may_answer(std::string_view theirs, std::string_view ours,
                const std::vector<std::string>& outline);

// Why a result of `theirs` is stale for `ours` ("NVRTC 13.0.88, here 13.1.12"); nullopt: it is not.
std::optional<std::string> stale(const Toolchain& theirs, const Toolchain& ours);

}  // namespace cubinery
