#include "cli/problem_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/gpus.h"
#include "cli/manifest.h"
#include "cli/print.h"
#include "codegen/read_json.h"
#include "runtime/gdn/shared/engine_forms.h"
#include "runtime/jit/template_source.h"
#include "runtime/registry/describe.h"

namespace cubinery {
namespace {

// What --form calls all of an engine's that are of single functions.
constexpr const char* kFunctions = "functions";

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "what it is: f32, bf16, f16 [bf16]", after the operators' names where others lack the field; and
// what the others take that have other choices or another default: "; gdn_conv: columns, channels
// [columns]".
std::string help_of(const FieldDescription& field) {
  std::vector<std::string> owners;
  std::string others;
  for (const OperatorDescription& op : operator_descriptions()) {
    for (const FieldDescription& its : op.fields) {
      if (its.name != field.name) continue;
      owners.emplace_back(op.name);
      const auto is_known = [&](std::string_view choice) {
        return std::find(field.choices.begin(), field.choices.end(), choice) != field.choices.end();
      };
      const bool has_others = !std::all_of(its.choices.begin(), its.choices.end(), is_known);
      if (!has_others && its.default_value == field.default_value) continue;
      others += fmt::format("; {}{} [{}]", op.name, has_others ? ": " + its.accepted : "",
                            its.default_value);
    }
  }
  const bool all_have_it = owners.size() == operator_descriptions().size();
  return fmt::format("{}{}{} [{}]{}", all_have_it ? "" : join(owners) + ": ", field.help,
                     field.type == "integer" ? "" : ": " + field.accepted, field.default_value,
                     others);
}

// The options of the fields that the requests' problems have.
std::vector<std::string> field_options(const std::vector<Request>& requests) {
  std::vector<std::string> options;
  for (const ProblemField& field : problem_fields()) {
    const bool is_used = std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
      return has_field(request, field.name);
    });
    if (is_used) options.push_back(option_name(field.name));
  }
  return options;
}

// A model's folder stands for its config.json.
std::string config_in(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored)
             ? (std::filesystem::path(path) / "config.json").string()
             : path;
}

// The files' requests, one after the other.
template <class Reader>
Status read_files(const std::vector<std::string>& files, std::vector<Request>* requests,
                  Reader&& reader) {
  for (const std::string& file : files) {
    const Result<std::string> text = read_file(file);
    if (!text) return text.error().clone();
    Result<std::vector<Request>> found = reader(file, *text);
    if (!found) return std::move(found).error();
    requests->insert(requests->end(), found->begin(), found->end());
  }
  return {};
}

// Every kernel of the caller's own has its template.
Status check_templates(const std::vector<Request>& requests, const Options& options) {
  for (const Request& request : requests) {
    if (!request.own_kernel || request.own_kernel->is_text()) continue;
    const Result<TemplateSource> found =
        find_template(request.own_kernel->name(), options.template_dirs, trust_of(options));
    if (found) continue;
    return Status(found.error().code(),
                  fmt::format("{}: {}", request.origin, found.error().message()));
  }
  return {};
}

// Whether Options::paths, which knows no operator, names some that there are.
Status check_path_operators(const Options& options) {
  for (const std::string& path : options.paths) {
    const std::string op = path.substr(0, path.find('='));
    if (is_in(operator_names(), op)) continue;
    return unknown_name("CUBINERY_PATHS has an operator", op, operator_names());
  }
  return {};
}

// The results that operators with these options take: those of the cache and inside the library.
// They are the same for every architecture.
Result<ResultsByOperator> results_of(Options options) {
  options.device = kNoDevice;
  options.arch = known_architectures().front();
  options.offline = true;  // nothing is compiled here
  const Result<Context> context = Context::create(std::move(options));
  if (!context) return context.error().clone();
  ResultsByOperator results;
  for (const std::string& op : operator_names()) results[op] = known_results(*context, op);
  return results;
}

}  // namespace

std::string option_name(std::string_view name) {
  std::string option = fmt::format("--{}", name);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

const std::vector<ProblemField>& problem_fields() {
  static const std::vector<ProblemField> kFields = [] {
    std::vector<ProblemField> fields;
    for (const OperatorDescription& op : operator_descriptions()) {
      auto place = fields.begin();
      for (const FieldDescription& field : op.fields) {
        auto known = std::find_if(fields.begin(), fields.end(),
                                  [&](const ProblemField& of) { return of.name == field.name; });
        if (known == fields.end()) {
          known = fields.insert(place, {std::string(field.name), help_of(field)});
        }
        place = known + 1;
      }
    }
    return fields;
  }();
  return kFields;
}

Result<Problem> with_fields(const Problem& problem,
                            const std::map<std::string, std::string>& fields) {
  Json object = *read_json(operator_of(problem), to_json(problem));
  // Texts go in as they are: parse_problem() is the judge of what each field takes.
  for (const auto& [name, text] : fields) {
    if (object.contains(name)) object[name] = text;
  }
  const std::string json = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  Result<Problem> changed = parse_problem(operator_of(problem), json);
  if (!changed) return changed;
  CUBINERY_RETURN_IF_ERROR(check(*changed));
  return changed;
}

void ProblemOptions::add_to(CLI::App& app) {
  add_problems_to(app);
  app.add_option("--arch", archs_,
                 "Architectures such as sm_90a,sm_80, or all [those of the GPUs here]")
      ->delimiter(',')
      ->type_name("ARCH,...");
  source_file_.add_to(app);
}

void ProblemOptions::add_problems_to(CLI::App& app) {
  app.add_option(
         "--hf-config", hf_configs_,
         "config.json of a model with Gated DeltaNet layers or Kimi Delta Attention, or its "
         "folder (repeatable)")
      ->type_name("FILE");
  app.add_option(
         "--engine", engine_,
         fmt::format("What this engine launches for --hf-config: {}", join(gdn::engine_names())))
      ->type_name("ENGINE");
  app.add_option("--model-type", model_type_,
                 fmt::format("Read --hf-config as a model of this type, whatever it says: {}",
                             join(gdn::model_types())))
      ->type_name("TYPE");
  app.add_option("--tp", tp_, "Tensor-parallel sizes that divide the heads of --hf-config [1]")
      ->delimiter(',')
      ->type_name("N,N,...");
  app.add_option(
         "--manifest", manifests_,
         fmt::format("JSON array of problems, or one on each line as CUBINERY_RECORD has them "
                     "(repeatable): {{\"op\": \"{}\", the fields below with underscores, "
                     "optionally \"arch\"}}, or kernels of your own: {{\"spec\": what to_json() "
                     "prints of a KernelSpec}}, {{\"source\": likewise of a KernelSource, or with "
                     "\"file\" for its text}}",
                     join(operator_names(), "\" or \"")))
      ->type_name("FILE");
  app.add_option("--op", operators_,
                 fmt::format("Only problems of these operators; without it, those that can do "
                             "what is asked [{}]",
                             join(operator_names(), ",")))
      ->delimiter(',')
      ->type_name("OP,...");
  app.add_option(
         "--form", forms_,
         fmt::format(
             "Only these problems of --hf-config (cubinery operators lists them, and with --engine "
             "docs/problems.md); without it, those that can do what is asked [{}]",
             join(form_names(), ",")))
      ->delimiter(',')
      ->type_name("FORM,...");
  for (const ProblemField& field : problem_fields()) {
    app.add_option_function<std::string>(
           option_name(field.name),
           [this, name = field.name](const std::string& text) { fields_[name] = text; }, field.help)
        ->type_name("VALUE")
        ->group(kFieldGroup);
  }
}

bool ProblemOptions::is_empty() const {
  return hf_configs_.empty() && manifests_.empty() && tp_.empty() && operators_.empty() &&
         forms_.empty() && fields_.empty() && model_type_.empty() && engine_.empty();
}

Result<std::vector<int>> ProblemOptions::tp_sizes() const {
  if (tp_.empty()) return std::vector<int>{1};
  if (hf_configs_.empty()) {
    return Status(Code::kInvalidArgument,
                  "--tp divides the heads of --hf-config, which is missing");
  }
  std::vector<int> sizes;
  for (const std::string& text : tp_) {
    int size = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, size);
    if (error != std::errc() || stop != end || size < 1) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--tp {}; accepted: positive integers, separated by commas", text));
    }
    sizes.push_back(size);
  }
  return sizes;
}

Status ProblemOptions::check_operators() const {
  const std::vector<std::string>& known = operator_names();
  for (const std::string& name : operators_) {
    if (!is_in(known, name)) return unknown_name("--op", name, known);
  }
  return {};
}

Status ProblemOptions::check_engine() const {
  if (engine_.empty()) return {};
  if (!is_in(gdn::engine_names(), engine_)) {
    return unknown_name("--engine", engine_, gdn::engine_names());
  }
  if (!hf_configs_.empty()) return {};
  return Status(Code::kInvalidArgument, "--engine is of --hf-config, which is missing");
}

bool ProblemOptions::asks_for_functions() const {
  return !engine_.empty() && is_in(forms_, kFunctions);
}

std::vector<std::string> ProblemOptions::known_forms() const {
  if (engine_.empty()) return form_names();
  std::vector<std::string> names;
  bool has_functions = false;
  for (const gdn::EngineForm& form : gdn::engine_forms()) {
    if (form.engine != engine_) continue;
    names.emplace_back(form.name);
    has_functions = has_functions || form.name.starts_with(gdn::kOfFunctions);
  }
  if (has_functions) names.emplace_back(kFunctions);
  return names;
}

Status ProblemOptions::check_forms() const {
  if (!forms_.empty() && hf_configs_.empty()) {
    return Status(Code::kInvalidArgument,
                  "--form chooses problems of --hf-config, which is missing");
  }
  const std::vector<std::string> known = known_forms();
  for (const std::string& name : forms_) {
    if (!is_in(known, name)) return unknown_name("--form", name, known);
  }
  if (operators_.empty() || !engine_.empty()) return {};
  for (const Form& form : model_forms()) {
    if (!is_in(forms_, std::string(form.name)) || is_in(operators_, form.op)) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("--form {}: it is of {}, which --op leaves out", form.name, form.op));
  }
  return {};
}

// Whether each name in --op is of a problem, where there are any.
Status ProblemOptions::check_operators_are_there(const std::vector<Request>& requests) const {
  std::vector<std::string> there;
  for (const Request& request : requests) {
    if (request.own_kernel) continue;
    const std::string op(operator_of(request.asked.problem));
    if (!is_in(there, op)) there.push_back(op);
  }
  for (const std::string& name : operators_) {
    if (requests.empty() || is_in(there, name)) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("--op {}: none of the problems is of it; accepted: {}", name,
                              there.empty() ? "no --op, for kernels of your own" : join(there)));
  }
  return {};
}

bool ProblemOptions::is_named(const Request& request) const {
  if (request.own_kernel) return operators_.empty();
  if (!operators_.empty() && !is_in(operators_, operator_of(request.asked.problem))) return false;
  if (forms_.empty() || request.asked.form.empty() || is_in(forms_, request.asked.form))
    return true;
  return asks_for_functions() && request.asked.form.starts_with(gdn::kOfFunctions);
}

// What decides how a configuration is read; the rest changes problems, each for itself.
gdn::ModelOptions ProblemOptions::model_options() const {
  gdn::ModelOptions options{.model_type = model_type_};
  for (const std::string_view name : {"dtype", "state_dtype", "output_norm", "draft_tokens"}) {
    const auto given = fields_.find(std::string(name));
    if (given == fields_.end()) continue;
    if (name == "state_dtype" && given->second != "auto") continue;
    if (name == "draft_tokens" && engine_.empty()) continue;
    options.switches.insert(*given);
  }
  options.functions = std::any_of(forms_.begin(), forms_.end(), [](const std::string& form) {
    return form == kFunctions || form.starts_with(gdn::kOfFunctions);
  });
  return options;
}

std::vector<Request> ProblemOptions::of_fields() const {
  std::vector<Request> requests;
  if (!hf_configs_.empty() || !manifests_.empty() || fields_.empty()) return requests;
  for (const std::string& op : operator_names()) {
    Request& request = requests.emplace_back();
    request.asked.problem = default_problem(op);
    request.origin = "command line";
  }
  return requests;
}

Result<std::vector<Request>> ProblemOptions::unmodified(LeftOuts* left_out) const {
  const Result<std::vector<int>> tp = tp_sizes();
  if (!tp) return tp.error().clone();
  if (hf_configs_.empty() && !model_type_.empty()) {
    return Status(Code::kInvalidArgument, "--model-type is of --hf-config, which is missing");
  }
  const Result<std::optional<Request>> own = source_file_.request();
  if (!own) return own.error().clone();
  std::vector<Request> requests = of_fields();
  if (requests.empty() && hf_configs_.empty() && manifests_.empty() && !*own) {
    return Status(Code::kInvalidArgument,
                  "no problem is given; accepted: --hf-config, --manifest, or problem fields such "
                  "as --key-dim 128 (see --help)");
  }
  const gdn::ModelOptions options = model_options();
  std::vector<std::string> configs;
  for (const std::string& path : hf_configs_) configs.push_back(config_in(path));
  CUBINERY_RETURN_IF_ERROR(read_files(configs, &requests, [&](auto& file, auto& text) {
    return engine_.empty() ? read_model_config(file, text, *tp, options)
                           : read_model_config(file, text, *tp, engine_, options);
  }));
  CUBINERY_RETURN_IF_ERROR(read_files(manifests_, &requests, [&](auto& file, auto& text) {
    return read_manifest(file, text, left_out);
  }));
  if (*own) requests.push_back(**own);
  return requests;
}

Status ProblemOptions::check_fields_are_used(const std::vector<Request>& requests,
                                             const FieldOptions& options) const {
  for (const auto& [name, text] : fields_) {
    const auto has_it = [&, &name = name](const Request& request) {
      return options.changes(request, name);
    };
    if (requests.empty() || std::any_of(requests.begin(), requests.end(), has_it)) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("{} {}: no problem is of an operator with this field; accepted: {}",
                              option_name(name), text, join(field_options(requests))));
  }
  return {};
}

// What nobody named may lack what the flags ask for, where something else has it: an operator where
// another can do it that has all fields which are given, a form where another of its operator can.
bool ProblemOptions::may_leave_out(const Request& refused, const std::vector<Request>& changed,
                                   const FieldOptions& options) const {
  if (!manifests_.empty() || !forms_.empty()) return false;
  return std::any_of(changed.begin(), changed.end(), [&](const Request& request) {
    return operators_.empty() ? options.change_all(request) : stands_in(request, refused);
  });
}

Result<std::vector<Request>> ProblemOptions::requests(LeftOuts* left_out) const {
  CUBINERY_RETURN_IF_ERROR(check_operators());
  CUBINERY_RETURN_IF_ERROR(check_engine());
  CUBINERY_RETURN_IF_ERROR(check_forms());
  Result<std::vector<Request>> requests = unmodified(left_out);
  if (!requests) return requests;
  CUBINERY_RETURN_IF_ERROR(check_operators_are_there(*requests));
  std::erase_if(*requests, [&](const Request& request) { return !is_named(request); });
  const FieldOptions options(fields_, *requests);
  CUBINERY_RETURN_IF_ERROR(check_fields_are_used(*requests, options));
  std::vector<Request> changed;
  std::vector<std::pair<Request, Status>> refused;
  for (Request& request : *requests) {
    request.may_be_left_out = !request.asked.form.empty() && forms_.empty() && manifests_.empty();
    if (request.own_kernel) {
      changed.push_back(std::move(request));
      continue;
    }
    Result<Problem> problem = with_fields(request.asked.problem, options.of(request));
    if (problem) {
      request.asked.problem = *std::move(problem);
      changed.push_back(std::move(request));
    } else {
      refused.emplace_back(std::move(request), std::move(problem).error());
    }
  }
  for (const auto& [request, error] : refused) {
    if (!may_leave_out(request, changed, options)) {
      return Status(Code::kInvalidArgument, fmt::format("{}: {}", request.origin, error.message()));
    }
    left_out->add(request, error);
  }
  return changed;
}

Result<std::vector<std::string>> ProblemOptions::archs(const Options& options) const {
  const std::vector<std::string>& known = known_architectures();
  if (archs_ == std::vector<std::string>{"all"}) return known;
  if (archs_.empty()) {
    Result<std::vector<std::string>> found = gpu_architectures(options.driver_path);
    if (found) return found;
    return Status(Code::kInvalidArgument,
                  fmt::format("--arch is missing and no GPU says which ({}); accepted: {}, all",
                              found.error().message(), join(known)));
  }
  std::vector<std::string> archs;
  for (const std::string& name : archs_) {
    if (!is_in(known, name)) return unknown_name("--arch", name, known, "all");
    if (!is_in(archs, name)) archs.push_back(name);
  }
  return archs;
}

Result<std::vector<Job>> ProblemOptions::jobs(const std::vector<Request>& requests,
                                              const Options& options, LeftOuts* left_out) const {
  // Without a request that leaves its architecture open, nobody needs --arch.
  const bool is_open = std::any_of(requests.begin(), requests.end(),
                                   [](const Request& request) { return request.arch.empty(); });
  std::vector<std::string> named;
  if (is_open || !archs_.empty()) {
    Result<std::vector<std::string>> found = archs(options);
    if (!found) return std::move(found).error();
    named = *std::move(found);
  }
  if (!is_open && !named.empty() && !requests.empty()) {
    print_error(fmt::format("--arch {} is not used: every problem names its own architecture",
                            join(archs_, ",")));
    named.clear();
  }
  CUBINERY_RETURN_IF_ERROR(check_path_operators(options));
  const Result<ResultsByOperator> results = results_of(options);
  if (!results) return results.error().clone();
  CUBINERY_RETURN_IF_ERROR(check_templates(requests, options));
  return plan_jobs(requests, named, *results, options.paths, left_out);
}

}  // namespace cubinery
