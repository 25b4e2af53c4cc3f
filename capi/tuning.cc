// Tuning: shapes, settings and summaries as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "capi/arguments.h"
#include "capi/documents.h"
#include "capi/for_python.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "capi/named_fields.h"
#include "cubinery/tuning.h"
#include "harness/tunable.h"
#include "tuner/measure/timer.h"

namespace cubinery::capi {
namespace {

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// NULL is an empty document of the type of `otherwise`.
Result<Json> read_document(std::string_view name, const char* text, const Json& otherwise) {
  if (text == nullptr) return otherwise;
  Result<Json> document = read_json(name, text);
  if (!document || document->type() == otherwise.type()) return document;
  return invalid(fmt::format("{} = {}; accepted: a JSON {}", name, json_excerpt(*document),
                             otherwise.type_name()));
}

// Every field that text can give.
constexpr std::tuple kSettings{
    Field{"budget_ms", &TuneSettings::budget},
    Field{"exhaustive_up_to", &TuneSettings::exhaustive_up_to},
    Field{"seed", &TuneSettings::seed},
    Field{"compile_threads", &TuneSettings::compile_threads},
    Field{"directory", &TuneSettings::directory},
    Field{"again", &TuneSettings::again},
};
constexpr std::tuple kRequest{
    Field{"format", &ReportRequest::format},       Field{"op", &ReportRequest::op},
    Field{"bucket", &ReportRequest::bucket},       Field{"setting", &ReportRequest::setting},
    Field{"copy_rate", &ReportRequest::copy_rate},
};

// Each sets *field to what `value` says, or returns what is accepted.
const char* set(const Json& value, std::unsigned_integral auto* field) {
  static_assert(sizeof *field == sizeof(std::uint64_t), "every number that JSON has fits");
  if (!value.is_number_unsigned()) return "integers from 0 up";
  value.get_to(*field);
  return nullptr;
}

const char* set(const Json& value, std::chrono::milliseconds* field) {
  std::uint64_t count = 0;
  if (const char* const accepted = set(value, &count)) return accepted;
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;  // so that a clock can add it to now
  *field = std::chrono::milliseconds(std::min(count, kLongest));
  return nullptr;
}

const char* set(const Json& value, bool* field) {
  if (!value.is_boolean()) return "true, false";
  value.get_to(*field);
  return nullptr;
}

const char* set(const Json& value, double* field) {
  if (!value.is_number() || value.get<double>() < 0) return "numbers from 0 up";
  value.get_to(*field);
  return nullptr;
}

const char* set(const Json& value, std::string* field) {
  if (!value.is_string()) return "a string";
  value.get_to(*field);
  return nullptr;
}

const char* set(const Json& value, ReportFormat* field) {
  constexpr std::pair<const char*, ReportFormat> kFormats[] = {
      {"table", ReportFormat::kTable},
      {"json", ReportFormat::kJson},
      {"t4", ReportFormat::kT4},
      {"kernel-tuner", ReportFormat::kKernelTuner}};
  for (const auto& [name, format] : kFormats) {
    if (value != name) continue;
    *field = format;
    return nullptr;
  }
  return "table, json, t4, kernel-tuner";
}

// NULL: every field has its default.
template <class Struct, class Fields>
Result<Struct> read_object(std::string_view where, const char* text, const Fields& fields) {
  const Result<Json> document = read_document(where, text, Json::object());
  if (!document) return document.error().clone();
  Struct read;
  for (const auto& [name, value] : document->items()) {
    CUBINERY_RETURN_IF_ERROR(set_field({where, ".", name, json_excerpt(value)}, fields, &read,
                                       [&json = value](auto* to) { return set(json, to); }));
  }
  return read;
}

Result<std::vector<Shape>> read_shapes(const char* text) {
  CUBINERY_RETURN_IF_ERROR(not_null("shapes", text));
  const Result<Json> document = read_document("shapes", text, Json::array());
  if (!document) return document.error().clone();
  std::vector<Shape> shapes;
  for (const Json& object : *document) {
    const std::string where = fmt::format("shapes[{}]", shapes.size());
    if (!object.is_object()) {
      return invalid(fmt::format("{} = {}; accepted: a JSON object", where, json_excerpt(object)));
    }
    shapes.emplace_back();
    for (const auto& [name, value] : object.items()) {
      const bool fits = value.is_number_integer() &&
                        (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
      if (!fits) {
        return invalid(
            fmt::format("{}.{} = {}; accepted: integers", where, name, json_excerpt(value)));
      }
      shapes.back().push_back({name, value.get<std::int64_t>()});
    }
  }
  return shapes;
}

Result<TuneSettings> read_settings(const char* directory, const char* settings) {
  Result<TuneSettings> given = read_object<TuneSettings>("settings", settings, kSettings);
  if (given && directory != nullptr) given->directory = directory;
  return given;
}

// {"choices": [[name, [value, ...]], ...]}, written by the module.
std::vector<SourceChoice> choices_of(const Json& document) {
  std::vector<SourceChoice> choices;
  for (const Json& choice : document.at("choices")) {
    choices.push_back(
        {choice.at(0).get<std::string>(), choice.at(1).get<std::vector<std::string>>()});
  }
  return choices;
}

Json json_of(const Timing& ms) {
  return {{"median", ms.median}, {"p10", ms.p10}, {"p90", ms.p90}, {"samples", ms.samples}};
}

Json json_of(const TuneProgress& at) {
  return {{"op", at.op},         {"bucket", at.bucket},     {"shapes_done", at.shapes_done},
          {"shapes", at.shapes}, {"measured", at.measured}, {"candidates", at.candidates},
          {"best", at.best},     {"best_ms", at.best_ms},   {"default_ms", at.default_ms},
          {"what", at.what}};
}

Json json_of(const TunedShape& tuned, const TuningSpace& space) {
  Json shape = Json::object();
  for (const ShapeSize& size : tuned.shape) shape[size.name] = size.value;
  Json object = {{"shape", std::move(shape)},
                 {"bucket", tuned.bucket},
                 {"complete", tuned.complete},
                 {"why", tuned.why}};
  if (!tuned.complete) return object;
  object["chosen"] = to_text(space.configurations[tuned.chosen].values);
  object["default"] = to_text(space.configurations[tuned.otherwise].values);
  object["chosen_ms"] = json_of(tuned.chosen_ms);
  object["default_ms"] = json_of(tuned.otherwise_ms);
  object["margin"] = tuned.margin;
  object["uncertainty"] = tuned.uncertainty;
  return object;
}

Json json_of(const TuneSummary& summary, const TuningSpace& space) {
  Json shapes = Json::array();
  for (const TunedShape& tuned : summary.shapes) shapes.push_back(json_of(tuned, space));
  return {{"shapes", std::move(shapes)}, {"measured", summary.measured},
          {"reused", summary.reused},    {"rejected", summary.rejected},
          {"stopped", summary.stopped},  {"directory", summary.directory}};
}

// Tunes, and prints the summary.
Status tune_and_print(const Context& context, Tunable& tunable, const std::vector<Shape>& shapes,
                      TuneSettings settings, CubineryTuneProgress progress, void* user,
                      char** summary) {
  bool stop = false;
  settings.should_stop = [&stop] { return stop; };
  if (progress != nullptr) {
    settings.progress = [&](const TuneProgress& at) {
      stop = stop || progress(printed(json_of(at)).c_str(), user) != 0;
    };
  }
  const Result<TuneSummary> made = tune(context, tunable, shapes, settings);
  if (!made) return made.error().clone();
  if (summary != nullptr) *summary = json_text(json_of(*made, tunable.space()));
  return {};
}

}  // namespace

int tune_in(const char* directory, const CubineryContext* context, const char* op,
            const char* problem, const char* shapes, const char* settings,
            CubineryTuneProgress progress, void* user, char** summary) {
  return guarded([&]() -> Status {
    if (summary != nullptr) *summary = nullptr;
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    const Result<Problem> parsed = read_problem(op, problem);
    if (!parsed) return parsed.error().clone();
    const Result<std::vector<Shape>> sizes = read_shapes(shapes);
    if (!sizes) return sizes.error().clone();
    Result<TuneSettings> given = read_settings(directory, settings);
    if (!given) return std::move(given).error();
    const Result<std::unique_ptr<Tunable>> tunable = make_tunable(context->value, *parsed);
    if (!tunable) return tunable.error().clone();

    return tune_and_print(context->value, **tunable, *sizes, *std::move(given), progress, user,
                          summary);
  });
}

int tune_tunable(const char* directory, const CubineryContext* context, Tunable& tunable,
                 const char* shapes, const char* settings, CubineryTuneProgress progress,
                 void* user, char** summary) {
  return guarded([&]() -> Status {
    const Result<std::vector<Shape>> sizes = read_shapes(shapes);
    if (!sizes) return sizes.error().clone();
    Result<TuneSettings> given = read_settings(directory, settings);
    if (!given) return std::move(given).error();
    return tune_and_print(context->value, tunable, *sizes, *std::move(given), progress, user,
                          summary);
  });
}

int source_space(const CubineryKernelSource* source, const char* choices, TuningSpace* space) {
  return guarded([&]() -> Status {
    KernelSource given;
    CUBINERY_RETURN_IF_ERROR(read_source(source, &given));
    const Result<Json> document = read_json("choices", choices);
    if (!document) return document.error().clone();
    const auto valid = document->at("valid").get<std::vector<bool>>();
    std::size_t next = 0;
    *space =
        tuning_space(given, choices_of(*document), [&](const auto&) { return valid.at(next++); });
    if (space->why_empty.empty()) return {};
    return invalid(fmt::format("{}: {}", given.name, space->why_empty));
  });
}

int choose_in(const CubineryContext* context, const TuningSpace& space, const char* shapes,
              char** choice) {
  return guarded([&]() -> Status {
    const Result<std::vector<Shape>> sizes = read_shapes(shapes);
    if (!sizes) return sizes.error().clone();
    const Choice chosen = choose(context->value, space, sizes->at(0), 0);
    *choice = json_text({{"index", chosen.index},
                         {"configuration", chosen.configuration},
                         {"rung", to_string(chosen.rung)},
                         {"why", chosen.why}});
    return {};
  });
}

Status synchronize(const CubineryContext* context) {
  const Result<std::unique_ptr<Timer>> timer = make_timer(context->value);
  return timer ? (*timer)->usable() : timer.error().clone();
}

std::int64_t l2_bytes(const CubineryContext* context) {
  const Result<GpuIdentity> gpu = gpu_identity(context->value);
  return gpu ? gpu->l2_bytes : 0;
}

}  // namespace cubinery::capi

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_tune(const CubineryContext* context, const char* op, const char* problem,
                  const char* shapes, const char* settings, CubineryTuneProgress progress,
                  void* user, char** summary) {
  return tune_in(nullptr, context, op, problem, shapes, settings, progress, user, summary);
}

int cubinery_tuning_report(const char* directory, const char* request, char** report) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("report", report));
    CUBINERY_RETURN_IF_ERROR(not_null("directory", directory));
    const Result<ReportRequest> asked = read_object<ReportRequest>("request", request, kRequest);
    if (!asked) return asked.error().clone();
    const Result<std::string> text = tuning_report(directory, *asked);
    if (!text) return text.error().clone();
    *report = new_text(*text);
    return {};
  });
}
