// The format "json" of reports: the records as they are, setting by setting, and what follows from
// them.  docs/reports.md describes it.
#include "tuner/report/report_json.h"

#include <utility>

#include "cubinery/version.h"
#include "results/records_json.h"
#include "tuner/report/report.h"

namespace cubinery {
namespace {

// Goes up when a member is removed or changes its meaning.
constexpr int kReportFormat = 1;

Json result_json(const TuningResult& result, const Json& setting) {
  Json object = members_of(json_of(result));
  for (const auto& [name, value] : setting.items()) object.erase(name);
  object["gain"] = gain_of(result);
  return object;
}

Json setting_json(const ReportedSetting& reported, const TuningReport& report) {
  const double copy_rate = report.copy_rate;
  Json object = members_of(json_of(reported.setting));
  // While the object has the members of the record alone.
  Json result = reported.result ? result_json(*reported.result, object) : Json();
  if (copy_rate > 0 && reported.setting.bytes > 0) {
    object["floor_ms"] = static_cast<double>(reported.setting.bytes) / copy_rate * 1e3;
  }
  object["stale"] = reported.stale ? Json(!reported.stale->empty()) : Json();
  if (reported.stale && !reported.stale->empty()) object["stale_because"] = *reported.stale;
  if (reported.result) result["chosen_because"] = why_chosen(reported, report);
  object["result"] = std::move(result);
  object["measurements"] = Json::array();
  for (const Measurement& measurement : reported.measurements) {
    Json members = members_of(json_of(measurement));
    members.erase("of");
    object["measurements"].push_back(std::move(members));
  }
  return object;
}

Json summary_json(const GainSummary& summary) {
  const Json setting = members_of(json_of(*summary.setting));
  return {{"op", setting["op"]},           {"gpu", setting["gpu"]},
          {"nvrtc", setting["nvrtc"]},     {"settings", summary.settings},
          {"decided", summary.decided},    {"keep_default", summary.keep_default},
          {"gain_median", summary.median}, {"gain_greatest", summary.greatest}};
}

}  // namespace

Json members_of(Json record) {
  record.erase(record.begin());
  return record;
}

std::string printed(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_json(const TuningReport& report) {
  Json document = {{"report", kReportFormat}, {"cubinery", CUBINERY_VERSION}};
  if (report.copy_rate > 0) document["copy_bytes_per_second"] = report.copy_rate;
  document["summary"] = Json::array();
  for (const GainSummary& summary : summaries(report)) {
    document["summary"].push_back(summary_json(summary));
  }
  document["settings"] = Json::array();
  for (const ReportedSetting& reported : report.settings) {
    document["settings"].push_back(setting_json(reported, report));
  }
  document["damaged"] = Json::array();
  for (const DamagedLine& line : report.damaged) {
    document["damaged"].push_back({{"path", line.path}, {"line", line.line}, {"what", line.what}});
  }
  return printed(document);
}

}  // namespace cubinery
