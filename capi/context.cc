// CubineryContext, and problems as text.
#include <algorithm>

#include "capi/arguments.h"
#include "capi/documents.h"
#include "capi/handles.h"
#include "capi/last_error.h"

namespace cubinery::capi {
namespace {

// The kernels of a problem for the context's architecture.
Result<std::vector<KernelSpec>> specs_for(const CubineryContext* context, const char* op,
                                          const char* problem) {
  CUBINERY_RETURN_IF_ERROR(not_null("context", context));
  const Result<Problem> parsed = read_problem(op, problem);
  if (!parsed) return parsed.error().clone();
  return kernels(*parsed, context->value.arch(), path_options(context->value),
                 known_results(context->value, op));
}

// Of a model, of the first form that is wanted.  Requires: there is one.
template <class Wanted>
Status problem_of_first(Wanted&& is_wanted, const char* config, int tp, char** problem) {
  CUBINERY_RETURN_IF_ERROR(not_null("config", config));
  const Result<std::vector<Problem>> problems = problems_for_model(config, tp);
  if (!problems) return problems.error().clone();
  const auto form = std::find_if(model_forms().begin(), model_forms().end(), is_wanted);
  *problem = new_text(to_json(problems->at(form - model_forms().begin())));
  return {};
}

// {"model_type": ..., switches}, all scalars; empty: none.
Result<gdn::ModelOptions> read_model_options(const char* options) {
  gdn::ModelOptions read;
  if (options == nullptr) return read;
  const Result<Json> fields = read_json("options", options);
  if (!fields) return fields.error().clone();
  if (!fields->is_object()) {
    return Status(Code::kInvalidArgument, "options: accepted: a JSON object");
  }
  for (const auto& [name, value] : fields->items()) {
    if (value.is_structured() || value.is_null()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("options: {} = {}; accepted: a string, a number, true, false",
                                excerpt(name), json_excerpt(value)));
    }
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (name == "model_type") {
      read.model_type = std::move(text);
    } else if (name == "arch" && value.is_string()) {
      read.arch = std::move(text);
    } else if (name == "functions" && value.is_boolean()) {
      read.functions = value.get<bool>();
    } else {
      read.switches[name] = std::move(text);
    }
  }
  return read;
}

// {"decode": {...}, ..., "left_out": [{"form", "why"}]}
Json json_of(const std::vector<Problem>& problems) {
  Json document = Json::object();
  Json left_out = Json::array();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string form(model_forms()[i].name);
    document[form] = *read_json(form, to_json(problems[i]));
    const Status checked = check(problems[i]);
    if (!checked.ok()) left_out.push_back({{"form", form}, {"why", checked.message()}});
  }
  document["left_out"] = std::move(left_out);
  return document;
}

// [{"form", "op", "problem", "left_out"}]
Json json_of(const std::vector<gdn::EngineProblem>& problems) {
  Json document = Json::array();
  for (const gdn::EngineProblem& one : problems) {
    document.push_back({{"form", one.form},
                        {"op", operator_of(one.problem)},
                        {"problem", *read_json(one.form, to_json(one.problem))}});
    if (!one.instead_of.empty()) document.back()["instead_of"] = one.instead_of;
    const Status checked = check(one.problem);
    if (!checked.ok()) document.back()["left_out"] = checked.message();
  }
  return document;
}

Json json_of(const CompiledKernel& kernel) {
  const KernelInfo& info = kernel.info;
  return {{"kernel", info.kernel},
          {"canonical", info.canonical},
          {"arch", info.arch},
          {"source", to_string(kernel.source)},
          {"path", kernel.path},
          {"nvrtc", info.nvrtc},
          {"registers", info.registers},
          {"spill_store_bytes", info.spill_store_bytes},
          {"spill_load_bytes", info.spill_load_bytes},
          {"compile_ms", info.compile_ms}};
}

Json json_of(const std::vector<CompiledKernel>& kernels) {
  Json document = Json::array();
  for (const CompiledKernel& kernel : kernels) document.push_back(json_of(kernel));
  return document;
}

// {"op", "problem"}, the entry of a list.
Result<Problem> read_listed(const Json& entry) {
  const Json op = entry.is_object() ? entry.value("op", Json()) : Json();
  if (!op.is_string() || !entry.contains("problem")) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}; accepted: {{\"op\": ..., \"problem\": ...}}", json_excerpt(entry)));
  }
  return read_problem(op.get<std::string>().c_str(), entry.at("problem").dump().c_str());
}

// [{"op", "problem"}, ...], without those that are left out.
Result<std::vector<gdn::AnyProblem>> read_problems(const char* problems) {
  CUBINERY_RETURN_IF_ERROR(not_null("problems", problems));
  const Result<Json> list = read_json("problems", problems);
  if (!list) return list.error().clone();
  if (!list->is_array()) {
    return Status(Code::kInvalidArgument, "problems: accepted: a JSON array of objects");
  }
  std::vector<gdn::AnyProblem> read;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = list->at(i);
    if (entry.is_object() && entry.contains("left_out")) continue;
    Result<Problem> problem = read_listed(entry);
    if (!problem) {
      return Status(problem.error().code(),
                    fmt::format("problems[{}]: {}", i, problem.error().message()));
    }
    read.push_back(*std::move(problem));
  }
  return read;
}

}  // namespace
}  // namespace cubinery::capi

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_context_create(const CubineryOptions* options, CubineryContext** context) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("context", context));
    Result<Options> chosen = options != nullptr ? options->value : Options::from_env();
    if (!chosen) return std::move(chosen).error();
    Result<Context> created = Context::create(*std::move(chosen));
    if (!created) return std::move(created).error();
    *context = new CubineryContext{*std::move(created)};
    return {};
  });
}

void cubinery_context_destroy(CubineryContext* context) { cubinery::capi::destroy(context); }

const char* cubinery_context_arch(const CubineryContext* context) {
  return context != nullptr ? context->value.arch().c_str() : "";
}

int cubinery_context_device(const CubineryContext* context) {
  return context != nullptr ? context->value.device() : kNoDevice;
}

int cubinery_context_sm_count(const CubineryContext* context) {
  return context != nullptr ? context->value.sm_count() : 0;
}

int cubinery_context_nvrtc_version(const CubineryContext* context, char** version) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("version", version));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    const Result<std::string> found = context->value.nvrtc_version();
    if (!found) return found.error().clone();
    *version = new_text(*found);
    return {};
  });
}

int cubinery_context_stats(const CubineryContext* context, CubineryCacheStats* stats) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    CUBINERY_RETURN_IF_ERROR(check_size("stats", stats));
    const CacheStats now = context->value.stats();
    const CubineryCacheStats whole{.struct_size = stats->struct_size,
                                   .memory_hits = now.memory_hits,
                                   .disk_hits = now.disk_hits,
                                   .misses = now.misses,
                                   .compiles = now.compiles,
                                   .damaged = now.damaged,
                                   .failed_writes = now.failed_writes};
    std::memcpy(stats, &whole, whole.struct_size);
    return {};
  });
}

int cubinery_check_problem(const char* op, const char* problem, char** full) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("full", full));
    const Result<Problem> parsed = read_problem(op, problem);
    if (!parsed) return parsed.error().clone();
    *full = new_text(to_json(*parsed));
    return {};
  });
}

int cubinery_problem_for_model(const char* op, const char* config, int tp, char** problem) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("problem", problem));
    CUBINERY_RETURN_IF_ERROR(check_operator(op));
    return problem_of_first([op](const Form& form) { return form.op == op; }, config, tp, problem);
  });
}

int cubinery_form_for_model(const char* form, const char* config, int tp, char** problem) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("problem", problem));
    CUBINERY_RETURN_IF_ERROR(check_form(form));
    return problem_of_first([form](const Form& one) { return one.name == form; }, config, tp,
                            problem);
  });
}

int cubinery_model_problems(const char* config, int tp, const char* options, char** problems) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("problems", problems));
    CUBINERY_RETURN_IF_ERROR(not_null("config", config));
    const Result<gdn::ModelOptions> read = read_model_options(options);
    if (!read) return read.error().clone();
    const Result<std::vector<Problem>> of_model = cubinery::problems_for_model(config, tp, *read);
    if (!of_model) return of_model.error().clone();
    *problems = json_text(json_of(*of_model));
    return {};
  });
}

int cubinery_engine_problems(const char* config, int tp, const char* engine, const char* options,
                             char** problems) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("problems", problems));
    CUBINERY_RETURN_IF_ERROR(not_null("config", config));
    CUBINERY_RETURN_IF_ERROR(not_null("engine", engine));
    const Result<gdn::ModelOptions> read = read_model_options(options);
    if (!read) return read.error().clone();
    const Result<std::vector<gdn::EngineProblem>> of_engine =
        gdn::problems_for_engine(config, tp, engine, *read);
    if (!of_engine) return of_engine.error().clone();
    *problems = json_text(json_of(*of_engine));
    return {};
  });
}

int cubinery_context_compile(const CubineryContext* context, const char* op, const char* problem,
                             char** report) {
  return guarded([&]() -> Status {
    if (report != nullptr) *report = nullptr;
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    const Result<Problem> parsed = read_problem(op, problem);
    if (!parsed) return parsed.error().clone();
    const Result<std::vector<CompiledKernel>> kernels =
        std::visit([&](const auto& one) { return context->value.compile(one); }, *parsed);
    if (!kernels) return kernels.error().clone();
    if (report != nullptr) *report = json_text(json_of(*kernels));
    return {};
  });
}

int cubinery_context_compile_problems(const CubineryContext* context, const char* problems,
                                      char** report) {
  return guarded([&]() -> Status {
    if (report != nullptr) *report = nullptr;
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    const Result<std::vector<gdn::AnyProblem>> read = read_problems(problems);
    if (!read) return read.error().clone();
    const Result<std::vector<CompiledKernel>> kernels = gdn::compile(context->value, *read);
    if (!kernels) return kernels.error().clone();
    if (report != nullptr) *report = json_text(json_of(*kernels));
    return {};
  });
}

int cubinery_context_explain(const CubineryContext* context, const char* op, const char* problem,
                             char** report) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("report", report));
    const Result<std::vector<KernelSpec>> specs = specs_for(context, op, problem);
    if (!specs) return specs.error().clone();
    Json document = Json::array();
    for (const KernelSpec& spec : *specs) {
      const Result<Explanation> found = context->value.explain(spec);
      if (!found) return found.error().clone();
      document.push_back(json_of(spec.kernel, spec.canonical, *found));
    }
    *report = json_text(document);
    return {};
  });
}
