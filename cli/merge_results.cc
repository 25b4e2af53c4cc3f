#include "cli/merge_results.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "cli/print.h"
#include "cli/result_lines.h"
#include "results/space.h"
#include "runtime/registry/operators.h"
#include "tuner/report/compare.h"
#include "tuner/report/table.h"

namespace cubinery {
namespace {

// Parts by what they have in common.
using Places = std::map<std::string, std::set<std::string>>;

// "13.0.88 (a, b), 12.9.86 (c)".
std::string text_of(const Places& common) {
  std::vector<std::string> texts;
  for (const auto& [what, places] : common) {
    texts.push_back(fmt::format("{} ({})", what, join({places.begin(), places.end()})));
  }
  return join(texts);
}

class Merge {
 public:
  explicit Merge(const std::vector<ResultsPart>& parts) : parts_(parts) {}

  MergedResults run() {
    for (const ResultsPart& part : parts_) add(part);
    check_compilers();
    check_bits();
    return std::move(merged_);
  }

 private:
  template <class... Arguments>
  void fault(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    merged_.faults.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  void add(const ResultsPart& part) {
    for (const DamagedLine& line : part.report.damaged) merged_.faults.push_back(line.text());
    std::size_t results = 0;
    std::map<std::pair<std::string, std::string>, std::size_t> unusable;  // (op, why) -> results
    for (const ReportedSetting& reported : part.report.settings) {
      if (!reported.result) continue;
      ++results;
      if (const std::string why = why_unusable(reported); !why.empty()) {
        ++unusable[{reported.setting.op, why}];
      }
      compilers_[reported.setting.nvrtc].insert(part.place);
      take(part, *reported.result);
    }
    if (results == 0) fault("{}: no results", part.place);
    for (const auto& [what, count] : unusable) {
      fault("{}: {} results of {}: {}", part.place, count, what.first, what.second);
    }
  }

  static std::string why_unusable(const ReportedSetting& reported) {
    if (reported.stale && !reported.stale->empty()) return "stale: " + *reported.stale;
    const bool is_ours = !path_kernels(reported.setting.op).empty();
    if (!is_ours) return "";  // of a kernel of the user's own
    const Result<Problem> problem = problem_of(reported.setting);
    return problem ? std::string() : std::string(problem.error().message());
  }

  void take(const ResultsPart& part, const TuningResult& result) {
    const std::string id = id_of(result.setting);
    const auto [place, is_new] = taken_.try_emplace(id, merged_.results.size(), &part);
    if (is_new) {
      merged_.results.push_back(result);
      return;
    }
    auto& [at, from] = place->second;
    TuningResult& earlier = merged_.results[at];
    ++merged_.repeated;
    const ComparedSetting both{.here = &earlier, .there = &result};
    if (!both.agrees()) {
      fault("{}, {}: {} us in {} and {} us in {}, {} % apart, their uncertainties allow {} %",
            result.setting.op, result.setting.bucket, us_text(earlier.ms.median), from->place,
            us_text(result.ms.median), part.place, percent_text(both.change()),
            percent_text(both.allowed()));
    }
    if (result.ms.median < earlier.ms.median) {
      earlier = result;
      from = &part;
    }
  }

  void check_compilers() {
    if (compilers_.size() < 2) return;
    fault("results of several versions of NVRTC, each of which reads its own alone: {}",
          text_of(compilers_));
  }

  // All settings of a problem on a GPU.
  void check_bits() {
    std::map<std::string, std::pair<const Setting*, Places>> chosen;  // by id: one of its settings
    for (const auto& [id, taken] : taken_) {
      const TuningResult& result = merged_.results[taken.first];
      Setting whole = result.setting;
      whole.bucket.clear();
      const std::string bits =
          to_text(bits_of(decision_of(result, /*batch_invariant=*/true).configuration));
      auto& [setting, by_bits] = chosen[id_of(whole)];
      setting = &result.setting;
      by_bits[bits].insert(taken.second->place);
    }
    for (const auto& [id, problem] : chosen) {
      const auto& [setting, by_bits] = problem;
      std::set<std::string> all;
      for (const auto& [bits, places] : by_bits) all.insert(places.begin(), places.end());
      // What one part measured at different times need not agree, and is that part's.
      if (by_bits.size() < 2 || all.size() < 2) continue;
      fault("{}: parts of one problem chose what has other bits: {}; measure it on one machine: {}",
            setting->op, text_of(by_bits), setting->problem);
    }
  }

  const std::vector<ResultsPart>& parts_;
  std::map<std::string, std::pair<std::size_t, const ResultsPart*>> taken_;  // by id
  Places compilers_;
  MergedResults merged_;
};

}  // namespace

MergedResults merge_results(const std::vector<ResultsPart>& parts) { return Merge(parts).run(); }

}  // namespace cubinery
