#include "results/choose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "results/shape.h"
#include "results/space.h"
#include "results/target.h"

namespace cubinery {
namespace {

// The parts of "name=value;name=value".
std::vector<std::pair<std::string_view, std::string_view>> fields_of(std::string_view fixed) {
  std::vector<std::pair<std::string_view, std::string_view>> fields;
  while (!fixed.empty()) {
    const std::string_view part = fixed.substr(0, fixed.find(';'));
    fixed.remove_prefix(std::min(part.size() + 1, fixed.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    fields.emplace_back(part.substr(0, equals), part.substr(std::min(equals + 1, part.size())));
  }
  return fields;
}

// Without fields_of(): every result is asked for a handful of values.
std::optional<std::string_view> value_of(std::string_view fixed, std::string_view name) {
  for (std::size_t at = fixed.find(name); at != fixed.npos; at = fixed.find(name, at + 1)) {
    if (at != 0 && fixed[at - 1] != ';') continue;
    const std::string_view rest = fixed.substr(at + name.size());
    if (rest.starts_with('=')) return rest.substr(1, std::min(rest.find(';'), rest.size()) - 1);
  }
  return std::nullopt;
}

// "gate=log, beta=one": what a result's problem has and ours has not.
std::string differing_fields(std::string_view theirs, std::string_view ours) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : fields_of(theirs)) {
    if (value_of(ours, name) != value) texts.push_back(fmt::format("{}={}", name, value));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
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
  const auto is_same_field = [&](const auto& field) { return same(field.first); };
  const auto ours = fields_of(problem), theirs = fields_of(their_problem);
  if (std::all_of(ours.begin(), ours.end(), is_same_field) &&
      std::all_of(theirs.begin(), theirs.end(), is_same_field)) {
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
  // Neighbours are mostly for one problem: it is asked for once.
  const std::string* before = nullptr;
  Wanted::Match match{};
  for (const TuningResult& result : *results_) {
    const Setting& setting = result.setting;
    if (setting.op != wanted_.op) continue;
    if (before == nullptr || *before != setting.problem) match = wanted_.match(setting.problem);
    before = &setting.problem;
    const std::optional<Kin> kin = kin_of(setting.gpu, match);
    if (!kin) continue;
    if (!is_usable(decision_of(result).configuration)) {
      count("of configurations that cannot be used here");
      continue;
    }
    const auto reason = stale(result);
    if (reason) count("stale: " + *reason);
    const double per_sm = log_ratio_of_sms(wanted_.gpu, setting.gpu);
    ranked_.push_back({&result, {reason.has_value(), *kin}, point_of(setting.features, per_sm)});
  }
  std::stable_sort(ranked_.begin(), ranked_.end(),
                   [](const Ranked& a, const Ranked& b) { return a.step < b.step; });
  if (wanted_.batch_invariant) keep_agreeing();
  drop_repeated();
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
  std::vector<std::pair<bool, const ShapeSize*>> sorted;  // whether it does not scale
  sorted.reserve(features.size());
  for (const ShapeSize& size : features) {
    sorted.emplace_back(
        std::find(std::begin(kPerSm), std::end(kPerSm), size.name) == std::end(kPerSm), &size);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->name) < std::tie(b.first, b.second->name);
  });
  Point point;
  point.sizes.reserve(sorted.size());
  for (const auto& [is_plain, size] : sorted) {
    point.names.append(size->name).append(";");
    point.sizes.push_back(
        {.log = std::log2(static_cast<double>(size->value)) + (is_plain ? 0 : per_sm),
         .weight = is_plain ? 1 : kWorkWeight,
         .bucket = nearest_log2(size->value)});
  }
  return point;
}

std::optional<Ladder::Nearest> Ladder::nearest(Step step, const Point& point) const {
  const Ranked* best = nullptr;
  double least = 0;
  bool is_exact = false;
  std::size_t among = 0;
  for (const Ranked& ranked : ranked_) {
    if (ranked.step != step) continue;
    ++among;
    if (ranked.point.sizes.size() != point.sizes.size()) continue;
    double away = 0;
    double weighted = 0;
    bool is_here = step.kin == Kin::kOwn;  // in the same bucket, as far as we got
    const auto is_farther = [&] { return best != nullptr && weighted > least - kRounding; };
    for (std::size_t i = 0; i < point.sizes.size() && (is_here || !is_farther()); ++i) {
      const Coordinate& ours = point.sizes[i];
      const Coordinate& theirs = ranked.point.sizes[i];
      const double size_away = std::abs(ours.log - theirs.log);
      away += size_away;
      if (away > kMaxDistance + kRounding) break;
      weighted += ours.weight * size_away;
      is_here = is_here && ours.bucket == theirs.bucket;
    }
    if (is_here) weighted = 0;
    // Names come last: to compare them takes the most time.
    if (away > kMaxDistance + kRounding || is_farther() || ranked.point.names != point.names) {
      continue;
    }
    best = &ranked;
    least = weighted;
    is_exact = is_here;
  }
  if (best == nullptr) return std::nullopt;
  const Rung rung = step.is_stale               ? Rung::kStale
                    : is_exact                  ? Rung::kExact
                    : step.kin == Kin::kOwn     ? Rung::kNearestShape
                    : step.kin == Kin::kSimilar ? Rung::kSimilarProblem
                                                : Rung::kSameArch;
  const bool is_similar = step.kin == Kin::kSimilar || step.kin == Kin::kOtherGpuSimilar;
  return Nearest{best->result, rung, least < kRounding, is_similar, among};
}

std::optional<Ladder::Nearest> Ladder::nearest(const Shape& features) const {
  const Point point = point_of(features, 0);
  const Step* before = nullptr;
  for (const Ranked& ranked : ranked_) {
    if (before != nullptr && ranked.step == *before) continue;
    before = &ranked.step;
    if (const std::optional<Nearest> found = nearest(ranked.step, point)) return found;
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
                        differing_fields(setting.problem, wanted_.problem));
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
