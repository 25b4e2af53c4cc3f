#include "tuner/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tuner/report/report_json.h"
#include "tuner/report/table.h"

namespace cubinery {
namespace {

// Goes up when a member is removed or changes its meaning.
constexpr int kComparisonFormat = 1;

double change_of(const Timing& here, const Timing& there) {
  return here.median > 0 && there.median > 0 ? there.median / here.median - 1 : 0;
}

// Rounding in the last of six digits is no change.
bool is_within(double change, double allowed) {
  return std::max(1 + change, 1 / (1 + change)) - 1 <= allowed + 1e-5;
}

std::string id_without_compiler(Setting setting) {
  setting.nvrtc.clear();
  return id_of(setting);
}

std::map<std::string, const TuningResult*> by_id(const TuningReport& report) {
  std::map<std::string, const TuningResult*> results;
  for (const ReportedSetting& reported : report.settings) {
    if (reported.result) results[id_without_compiler(reported.setting)] = &*reported.result;
  }
  return results;
}

std::vector<std::string> row_of(const ComparedSetting& compared) {
  const TuningResult& here = *compared.here;
  const TuningResult& there = *compared.there;
  return {here.setting.op,
          here.setting.bucket,
          us_text(here.ms.median),
          us_text(there.ms.median),
          percent_text(compared.change()),
          percent_text(compared.default_change()),
          percent_text(compared.allowed()),
          compared.agrees() ? "yes" : "no",
          to_text(here.configuration),
          compared.same_choice() ? "the same" : to_text(there.configuration)};
}

}  // namespace

bool ComparedSetting::same_choice() const { return here->configuration == there->configuration; }

double ComparedSetting::change() const { return change_of(here->ms, there->ms); }

double ComparedSetting::default_change() const {
  if (here->otherwise != there->otherwise) return 0;
  return change_of(here->otherwise_ms, there->otherwise_ms);
}

double ComparedSetting::allowed() const { return here->uncertainty + there->uncertainty; }

bool ComparedSetting::agrees() const {
  return is_within(change(), allowed()) && is_within(default_change(), allowed());
}

std::size_t Comparison::same_choices() const {
  return static_cast<std::size_t>(
      std::count_if(settings.begin(), settings.end(),
                    [](const ComparedSetting& compared) { return compared.same_choice(); }));
}

std::size_t Comparison::agreeing() const {
  return static_cast<std::size_t>(
      std::count_if(settings.begin(), settings.end(),
                    [](const ComparedSetting& compared) { return compared.agrees(); }));
}

Comparison compare(const TuningReport& here, const TuningReport& there) {
  const std::map<std::string, const TuningResult*> ours = by_id(here);
  const std::map<std::string, const TuningResult*> theirs = by_id(there);
  Comparison comparison;
  for (const ReportedSetting& reported : here.settings) {
    if (!reported.result) continue;
    const std::string id = id_without_compiler(reported.setting);
    const auto their = theirs.find(id);
    if (ours.at(id) != &*reported.result || their == theirs.end()) continue;
    comparison.settings.push_back({&*reported.result, their->second});
  }
  comparison.only_here = ours.size() - comparison.settings.size();
  comparison.only_there = theirs.size() - comparison.settings.size();
  return comparison;
}

std::string comparison_table(const Comparison& comparison) {
  Table table({"op", "bucket", "us", "us there", "change %", "default %", "allowed %", "agrees",
               "configuration", "there"});
  for (const ComparedSetting& compared : comparison.settings) table.add(row_of(compared));
  return table.text() + fmt::format(
                            "{} settings in both: {} agree, {} with the same choice; {} only here, "
                            "{} only there\n",
                            comparison.settings.size(), comparison.agreeing(),
                            comparison.same_choices(), comparison.only_here, comparison.only_there);
}

std::string comparison_json(const Comparison& comparison) {
  Json document = {{"comparison", kComparisonFormat}, {"settings", Json::array()}};
  for (const ComparedSetting& compared : comparison.settings) {
    const Setting& setting = compared.here->setting;
    document["settings"].push_back({{"op", setting.op},
                                    {"problem", setting.problem},
                                    {"bucket", setting.bucket},
                                    {"gpu", setting.gpu.name},
                                    {"configuration", to_text(compared.here->configuration)},
                                    {"configuration_there", to_text(compared.there->configuration)},
                                    {"change", compared.change()},
                                    {"default_change", compared.default_change()},
                                    {"allowed", compared.allowed()},
                                    {"agrees", compared.agrees()}});
  }
  document["agreeing"] = comparison.agreeing();
  document["same_choices"] = comparison.same_choices();
  document["only_here"] = comparison.only_here;
  document["only_there"] = comparison.only_there;
  return printed(document);
}

}  // namespace cubinery
