#include "results/choose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "results/shape.h"
#include "results/space.h"
#include "results/target.h"

namespace cubinery {
namespace {

// Takes the first "name=value" of "name=value;name=value" away.
std::string_view take_part(std::string_view* fixed) {
  const std::string_view part = fixed->substr(0, fixed->find(';'));
  fixed->remove_prefix(std::min(part.size() + 1, fixed->size()));
  return part;
}

std::string_view name_of_part(std::string_view part) { return part.substr(0, part.find('=')); }

std::optional<std::string_view> value_of(std::string_view fixed, std::string_view name) {
  for (std::size_t at = fixed.find(name); at != fixed.npos; at = fixed.find(name, at + 1)) {
    if (at != 0 && fixed[at - 1] != ';') continue;
    const std::string_view rest = fixed.substr(at + name.size());
    if (rest.starts_with('=')) return rest.substr(1, std::min(rest.find(';'), rest.size()) - 1);
  }
  return std::nullopt;
}

// {"gate=log", "beta=one"}: what their problem has and ours has not.
std::vector<std::string_view> differing_parts(std::string_view theirs, std::string_view ours) {
  std::vector<std::string_view> differing;
  // Mostly both have the same fields in the same order: then none is searched for.
  for (std::string_view rest = ours; !theirs.empty();) {
    const std::string_view part = take_part(&theirs);
    if (part == take_part(&rest)) continue;
    const std::string_view name = name_of_part(part);
    if (value_of(ours, name) != part.substr(std::min(name.size() + 1, part.size()))) {
      differing.push_back(part);
    }
  }
  return differing;
}

// What id_of() says, without the price of a digest.
bool is_same_setting(const Setting& a, const Setting& b) {
  return a.bucket == b.bucket && a.problem == b.problem && a.gpu.is_same(b.gpu) &&
         a.nvrtc == b.nvrtc;
}

// Any difference in parallel work comes before all others.
constexpr double kWorkWeight = 100;
constexpr double kRounding = 1e-9;  // of distances

// Work per multiprocessor is equal when sizes are this much larger here than there, as a logarithm.
double log_ratio_of_sms(const GpuIdentity& ours, const GpuIdentity& theirs) {
  if (ours.sm_count < 1 || theirs.sm_count < 1) return 0;
  return std::log2(static_cast<double>(ours.sm_count) / theirs.sm_count);
}

std::string name_of(const GpuIdentity& gpu) {
  return gpu.name.empty() ? fmt::format("another {} GPU", gpu.arch) : gpu.name;
}

// ": 3.1 % faster than the default (142.1 against 146.7 us)"; nothing where times are not known.
std::string gain(const TuningResult& result, const Decision& decision) {
  const double us = decision.ms.median * 1000;
  const double default_us = result.otherwise_ms.median * 1000;
  if (!(us > 0)) return "";
  if (decision.configuration == result.otherwise) {
    return fmt::format(": the default is the fastest ({:.1f} us)", us);
  }
  if (!(default_us > 0)) return fmt::format(" ({:.1f} us)", us);
  const double percent = 100 * (1 - us / default_us);
  return fmt::format(": {:.1f} % {} than the default ({:.1f} against {:.1f} us)", std::abs(percent),
                     percent < 0 ? "slower" : "faster", us, default_us);
}

}  // namespace

Wanted::Match Wanted::match(std::string_view their_problem) const {
  if (their_problem == problem) return Match::kSame;
  const auto same = [&](std::string_view name) {
    const auto value = [&](std::string_view text) {
      const std::optional<std::string_view> given = value_of(text, name);
      return given ? given : value_of(defaults, name);
    };
    const std::optional<std::string_view> ours = value(problem);
    return ours && ours == value(their_problem);
  };
  // Most results are for problems that differ here already.
  const bool is_outlined = std::all_of(outline.begin(), outline.end(), same);
  if (!is_outlined) return Match::kNone;
  const auto is_same_part = [&](std::string_view part) { return same(name_of_part(part)); };
  const auto ours = differing_parts(problem, their_problem);
  const auto theirs = differing_parts(their_problem, problem);
  if (std::all_of(ours.begin(), ours.end(), is_same_part) &&
      std::all_of(theirs.begin(), theirs.end(), is_same_part)) {
    return Match::kSame;
  }
  return outline.empty() ? Match::kNone : Match::kOutline;
}

std::optional<std::string> stale(const Setting& setting, const Decision& decision,
                                 const Toolchain& ours) {
  const auto templates = ours.templates.find(path_of(decision.configuration));
  if (templates == ours.templates.end()) return "this version has no such path";
  if (templates->second != decision.templates) return "the kernels' templates have changed";
  if (ours.nvrtc.empty() || setting.nvrtc == ours.nvrtc) return std::nullopt;
  return fmt::format("measured with NVRTC {}, here {}", setting.nvrtc, ours.nvrtc);
}

Wanted wanted_of(const TuningSpace& space) {
  return {.op = space.op,
          .problem = space.problem,
          .defaults = space.defaults,
          .outline = space.outline,
          .batch_invariant = space.batch_invariant};
}

std::vector<TuningResult> results_for(const Wanted& wanted,
                                      const std::vector<TuningResult>& results) {
  std::vector<TuningResult> found;
  for (const TuningResult& result : results) {
    const Setting& setting = result.setting;
    if (setting.gpu.arch != wanted.gpu.arch || !wanted.includes(setting.op, setting.problem)) {
      continue;
    }
    found.push_back(result);
  }
  return found;
}

std::vector<GpuIdentity> gpus_of(const Arch& arch, const std::vector<TuningResult>& results) {
  std::vector<GpuIdentity> gpus = known_gpus(arch);
  for (const TuningResult& result : results) {
    const GpuIdentity& gpu = result.setting.gpu;
    const auto is_it = [&](const GpuIdentity& other) { return other.is_same(gpu); };
    if (std::none_of(gpus.begin(), gpus.end(), is_it)) gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<Toolchain> toolchains_of(
    const std::vector<TuningResult>& results,
    const std::map<std::string, std::string, std::less<>>& templates) {
  std::set<std::string> versions;
  for (const TuningResult& result : results) versions.insert(result.setting.nvrtc);
  std::vector<Toolchain> toolchains{{.nvrtc = {}, .templates = templates}};
  if (versions.size() < 2) return toolchains;
  for (const std::string& version : versions) {
    toolchains.push_back({.nvrtc = version, .templates = templates});
  }
  return toolchains;
}

Ladder::Ladder(Wanted wanted, Results results)
    : wanted_(std::move(wanted)), results_(std::move(results)) {
  // Many results have the same configuration, and asking is what takes time here.
  std::vector<std::pair<const std::vector<TunedValue>*, bool>> asked;
  const auto is_usable = [&](const std::vector<TunedValue>& values) {
    if (!wanted_.toolchain.templates.contains(path_of(values))) return false;
    if (!wanted_.usable) return true;
    const auto known = std::find_if(asked.begin(), asked.end(),
                                    [&](const auto& one) { return *one.first == values; });
    if (known != asked.end()) return known->second;
    return asked.emplace_back(&values, wanted_.usable(values)).second;
  };
  // Results are for a few problems: each is asked for once.
  struct Known {
    Wanted::Match match = Wanted::Match::kNone;
    std::size_t differing = 0;  // fields of a similar one
  };
  std::map<std::string_view, Known> problems;
  for (const TuningResult& result : *results_) {
    const Setting& setting = result.setting;
    if (setting.op != wanted_.op) continue;
    const auto [known, is_first] = problems.try_emplace(setting.problem);
    if (is_first) known->second.match = wanted_.match(setting.problem);
    if (is_first && known->second.match == Wanted::Match::kOutline) {
      known->second.differing = differing_parts(setting.problem, wanted_.problem).size();
    }
    const std::optional<Kin> kin = kin_of(setting.gpu, known->second.match);
    if (!kin) continue;
    if (!is_usable(decision_of(result).configuration)) {
      count("of configurations that cannot be used here");
      continue;
    }
    const auto reason = stale(result);
    if (reason) count("stale: " + *reason);
    const double per_sm = log_ratio_of_sms(wanted_.gpu, setting.gpu);
    ranked_.push_back({.result = &result,
                       .step = {reason.has_value(), *kin},
                       .differing = known->second.differing,
                       .point = point_of(setting.features, per_sm)});
  }
  std::stable_sort(ranked_.begin(), ranked_.end(),
                   [](const Ranked& a, const Ranked& b) { return a.step < b.step; });
  if (wanted_.batch_invariant) keep_agreeing();
  drop_repeated();
  make_steps();
}

std::optional<Ladder::Kin> Ladder::kin_of(const GpuIdentity& gpu, Wanted::Match match) const {
  if (gpu.arch != wanted_.gpu.arch) return std::nullopt;
  const bool here = gpu.is_same(wanted_.gpu);
  switch (match) {
    case Wanted::Match::kSame:
      return here ? Kin::kOwn : Kin::kOtherGpu;
    case Wanted::Match::kOutline:
      return here ? Kin::kSimilar : Kin::kOtherGpuSimilar;
    case Wanted::Match::kNone:
      break;
  }
  return std::nullopt;
}

std::optional<std::string> Ladder::stale(const TuningResult& result) const {
  return cubinery::stale(result.setting, decision_of(result), wanted_.toolchain);
}

void Ladder::count(std::string reason) {
  for (auto& [known, times] : reasons_) {
    if (known == reason) {
      ++times;
      return;
    }
  }
  reasons_.emplace_back(std::move(reason), 1);
}

void Ladder::keep_agreeing() {
  if (ranked_.empty()) return;
  const std::vector<TunedValue> bits = bits_of(decision_of(*ranked_.front().result).configuration);
  std::erase_if(ranked_, [&](const Ranked& ranked) {
    const bool differs = bits_of(decision_of(*ranked.result).configuration) != bits;
    if (differs) count("left out: their outputs differ in bits from those with " + to_text(bits));
    return differs;
  });
}

// Of two results for one setting the later one never counts, even where its shape is nearer within
// the bucket: the user's go before the library's.
void Ladder::drop_repeated() {
  std::vector<Ranked> kept;
  for (const Ranked& ranked : ranked_) {
    const bool repeats = std::any_of(kept.begin(), kept.end(), [&](const Ranked& earlier) {
      return is_same_setting(earlier.result->setting, ranked.result->setting);
    });
    if (!repeats) kept.push_back(ranked);
  }
  ranked_ = std::move(kept);
}

Ladder::Point Ladder::point_of(const Shape& features, double per_sm) {
  Point point;
  point.reserve(features.size());
  for (const ShapeSize& size : features) {
    const bool is_per_sm =
        std::find(std::begin(kPerSm), std::end(kPerSm), size.name) != std::end(kPerSm);
    point.push_back({.name = size.name,
                     .log = std::log2(static_cast<double>(size.value)) + (is_per_sm ? per_sm : 0),
                     .weight = is_per_sm ? kWorkWeight : 1,
                     .bucket = size_in_bucket(size)});
  }
  std::sort(point.begin(), point.end(), [](const Coordinate& a, const Coordinate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.name < b.name;
  });
  return point;
}

void Ladder::make_steps() {
  for (const Ranked& ranked : ranked_) {
    if (steps_.empty() || steps_.back().step != ranked.step) steps_.push_back({ranked.step, {}});
    steps_.back().results.push_back(&ranked);
  }
  for (StepResults& step : steps_) {
    std::sort(step.results.begin(), step.results.end(), [](const Ranked* a, const Ranked* b) {
      return first_log(a->point) < first_log(b->point);
    });
  }
}

// For the result of a step that is nearest to a point.
class Ladder::Search {
 public:
  Search(Step step, const Point& point)
      : is_on_this_gpu_(step.kin == Kin::kOwn || step.kin == Kin::kSimilar), point_(point) {}

  // False: no result that is farther by its first size is nearer than the nearest so far.
  bool look_at(const Ranked& ranked);

  const Ranked* nearest() const { return nearest_; }
  double distance() const { return distance_; }
  bool is_exact() const { return is_exact_; }

 private:
  bool is_on_this_gpu_;  // then a result stands for its whole bucket
  const Point& point_;
  const Ranked* nearest_ = nullptr;
  double distance_ = 0;    // to it, weighted
  bool is_exact_ = false;  // it is in the same bucket
};

bool Ladder::Search::look_at(const Ranked& ranked) {
  if (ranked.point.size() != point_.size()) return true;
  double away = 0;
  double weighted = 0;
  bool is_exact = is_on_this_gpu_;  // as far as we got
  for (std::size_t i = 0; i < point_.size(); ++i) {
    const Coordinate& ours = point_[i];
    const Coordinate& theirs = ranked.point[i];
    const double size_away = std::abs(ours.log - theirs.log);
    away += size_away;
    weighted += ours.weight * size_away;
    is_exact = is_exact && ours.bucket == theirs.bucket;
    const bool is_farther = nearest_ != nullptr && !is_exact && weighted > distance_ + kRounding;
    if (away > kMaxDistance + kRounding || is_farther) return i > 0;
  }
  if (is_exact) weighted = 0;
  const auto is_before = [&] {  // on a tie
    return std::pair(ranked.differing, &ranked) < std::pair(nearest_->differing, nearest_);
  };
  const bool is_nearer = nearest_ == nullptr || weighted <= distance_ - kRounding ||
                         (weighted <= distance_ + kRounding && is_before());
  const auto same_name = [](const Coordinate& a, const Coordinate& b) { return a.name == b.name; };
  // Names come last: to compare them takes the most time.
  if (is_nearer && std::equal(point_.begin(), point_.end(), ranked.point.begin(), same_name)) {
    nearest_ = &ranked;
    distance_ = weighted;
    is_exact_ = is_exact;
  }
  return true;
}

std::optional<Ladder::Nearest> Ladder::nearest(const StepResults& of_step, const Point& point) {
  Search search(of_step.step, point);
  const auto begin = of_step.results.begin(), end = of_step.results.end();
  const auto is_smaller = [](const Ranked* ranked, double log) {
    return first_log(ranked->point) < log;
  };
  const auto middle = std::lower_bound(begin, end, first_log(point), is_smaller);
  for (auto larger = middle; larger != end && search.look_at(**larger);) ++larger;
  for (auto smaller = middle; smaller != begin && search.look_at(*smaller[-1]);) --smaller;
  if (search.nearest() == nullptr) return std::nullopt;
  const auto [is_stale, kin] = of_step.step;
  const Rung own = search.is_exact() ? Rung::kExact : Rung::kNearestShape;
  const Rung found = is_stale               ? Rung::kStale
                     : kin == Kin::kOwn     ? own
                     : kin == Kin::kSimilar ? Rung::kSimilarProblem
                                            : Rung::kSameArch;
  return Nearest{.result = search.nearest()->result,
                 .rung = found,
                 .is_here = search.distance() < kRounding,
                 .is_similar = kin == Kin::kSimilar || kin == Kin::kOtherGpuSimilar,
                 .among = of_step.results.size()};
}

std::optional<Ladder::Nearest> Ladder::nearest(const Shape& features) const {
  const Point point = point_of(features, 0);
  for (const StepResults& of_step : steps_) {
    if (const std::optional<Nearest> found = nearest(of_step, point)) return found;
  }
  return std::nullopt;
}

const std::vector<TunedValue>& Ladder::configuration(const Nearest& nearest) const {
  return decision_of(*nearest.result).configuration;
}

std::string Ladder::why(const Nearest& nearest) const {
  const TuningResult& result = *nearest.result;
  const Setting& setting = result.setting;
  std::string text = fmt::format("measured on {}", name_of(setting.gpu));
  if (!setting.gpu.is_same(wanted_.gpu)) {
    text += fmt::format(" ({} SMs, here {})", setting.gpu.sm_count, wanted_.gpu.sm_count);
  }
  // Where the compiler here is not known yet nobody can say whether it is another.
  if (wanted_.toolchain.nvrtc.empty() && !setting.nvrtc.empty()) {
    text += " with NVRTC " + setting.nvrtc;
  }
  text += " for " + to_text(setting.features);
  if (nearest.is_similar) {
    text += fmt::format(" of a similar problem ({})",
                        fmt::join(differing_parts(setting.problem, wanted_.problem), ", "));
  }
  text += gain(result, decision_of(result));
  if (!nearest.is_here) {
    text += fmt::format("; the nearest of {} measured shape{}", nearest.among,
                        nearest.among == 1 ? "" : "s");
  }
  if (const auto reason = stale(result)) text += "; stale: " + *reason;
  return text;
}

std::string Ladder::why_none() const {
  std::string text;
  if (!ranked_.empty()) {
    text = "no result within a factor of 8";
  } else if (reasons_.empty()) {
    text = "not measured for this problem on this GPU";
  }
  for (const auto& [reason, times] : reasons_) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} result{} {} {}", times, times == 1 ? "" : "s",
                        times == 1 ? "is" : "are", reason);
  }
  return text;
}

std::vector<std::vector<TunedValue>> Ladder::configurations() const {
  std::vector<std::vector<TunedValue>> found;
  for (const Ranked& ranked : ranked_) {
    const std::vector<TunedValue>& values = decision_of(*ranked.result).configuration;
    if (std::find(found.begin(), found.end(), values) == found.end()) found.push_back(values);
  }
  return found;
}

}  // namespace cubinery
