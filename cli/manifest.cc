#include "cli/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "cli/print.h"
#include "codegen/bundle.h"
#include "codegen/kernel_source.h"
#include "codegen/nearest.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace {

constexpr const char* kFile = "file";

Status invalid_manifest(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

// Manifests name kernels by what a field table prints: not those that have one here.
Status check_is_not_ours(const std::string& kernel) {
  if (embedded_digests(kernel) == nullptr) return {};
  return invalid_manifest(
      fmt::format("spec: {} is a kernel of the library; accepted: its problem, as "
                  "{{\"op\": ...}}",
                  kernel));
}

Result<AskedKernel> read_spec(const Json& value) {
  Result<KernelSpec> spec = kernel_spec_from_json(value.dump());
  if (!spec) return std::move(spec).error();
  CUBINERY_RETURN_IF_ERROR(check_is_not_ours(spec->kernel));
  return AskedKernel(*std::move(spec));
}

Result<AskedKernel> read_source(Json value, const std::string& folder) {
  SourceFile asked;
  if (value.is_object() && value.contains(kFile)) {
    const Json file = value.at(kFile);
    if (!file.is_string()) {
      return invalid_manifest(
          fmt::format("source: file = {}; accepted: a string", json_excerpt(file)));
    }
    if (value.contains("source")) {
      return invalid_manifest("source: file beside source; accepted: one of them");
    }
    asked.file = file.get<std::string>();
    value.erase(kFile);
  }
  Result<KernelSource> source = read_kernel_source(value, kFile);
  if (!source) return std::move(source).error();
  asked.source = *std::move(source);
  return read_source_file(std::move(asked), folder);
}

// A manifest's entry {"spec": ...} or {"source": ...}, "arch" taken out.
Result<Request> read_own_kernel(const Json& entry, const std::string& kind,
                                const std::string& folder) {
  for (const auto& [name, ignored] : entry.items()) {
    if (name != kind) {
      return invalid_manifest(fmt::format("{} beside {}; accepted: arch", excerpt(name), kind));
    }
  }
  Result<AskedKernel> kernel =
      kind == "spec" ? read_spec(entry.at(kind)) : read_source(entry.at(kind), folder);
  if (!kernel) return std::move(kernel).error();
  Request request;
  request.own_kernel = *std::move(kernel);
  return request;
}

// A manifest's entry {"op": ..., fields}, "arch" taken out.
Result<Request> read_listed_problem(Json entry) {
  const std::vector<std::string>& operators = operator_names();
  const Json op = entry.value("op", Json());
  const std::string name = op.is_string() ? op.get<std::string>() : "";
  if (std::find(operators.begin(), operators.end(), name) == operators.end()) {
    return invalid_manifest(fmt::format("op = {}; accepted: {}{}", json_excerpt(op),
                                        join(operators), did_you_mean(name, operators)));
  }
  entry.erase("op");
  Result<Problem> problem = parse_problem(name, entry.dump());
  if (!problem) return std::move(problem).error();
  Request request;
  request.asked.problem = *std::move(problem);
  return request;
}

Result<Request> read_any(Json entry, const std::string& folder) {
  for (const char* kind : {"spec", "source"}) {
    if (entry.contains(kind)) return read_own_kernel(entry, kind, folder);
  }
  return read_listed_problem(std::move(entry));
}

// `where`: "list.json, entry 3".
Result<Request> read_entry(Json entry, const std::string& where, const std::string& folder) {
  const auto at = [&where](std::string_view message) {
    return invalid_manifest(fmt::format("{}: {}", where, message));
  };
  if (!entry.is_object()) return at(json_excerpt(entry) + "; accepted: an object");
  const Json arch = entry.value("arch", Json(""));
  if (!arch.is_string()) {
    return at(
        fmt::format("arch = {}; accepted: {}", json_excerpt(arch), join(known_architectures())));
  }
  entry.erase("arch");
  Result<Request> request = read_any(std::move(entry), folder);
  if (!request) return at(request.error().message());
  request->arch = arch.get<std::string>();
  request->origin = where;
  return request;
}

Result<std::vector<Request>> read_array(std::string_view file, const Json& root,
                                        const std::string& folder) {
  if (!root.is_array()) {
    return invalid_manifest(
        fmt::format("{}: accepted: a JSON array of objects, or an object on each line", file));
  }
  std::vector<Request> requests;
  for (const Json& entry : root) {
    const std::string where = fmt::format("{}, entry {}", file, requests.size() + 1);
    Result<Request> request = read_entry(entry, where, folder);
    if (!request) return std::move(request).error();
    requests.push_back(*std::move(request));
  }
  return requests;
}

// Whether the line ends within a string, an object or an array.
bool is_cut(std::string_view line) {
  std::size_t depth = 0;
  bool is_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (is_string) {
      if (c == '\\') ++i;
      if (c == '"') is_string = false;
    } else if (c == '"') {
      is_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && depth-- == 0) {
      return false;
    }
  }
  return is_string || depth > 0;
}

Result<std::vector<Request>> read_lines(std::string_view file, std::string_view text,
                                        const std::string& folder, LeftOuts* left_out) {
  std::vector<Request> requests;
  std::set<std::string> known;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (is_cut(line)) {
      if (left_out != nullptr) left_out->add_line(number, file, "it ends before its object does");
      continue;
    }
    const std::string where = fmt::format("{}, line {}", file, number);
    const Result<Json> entry = read_json(where, line);
    if (!entry) return entry.error().clone();
    if (!known.insert(entry->dump()).second) continue;
    Result<Request> request = read_entry(*entry, where, folder);
    if (!request) return std::move(request).error();
    requests.push_back(*std::move(request));
  }
  return requests;
}

}  // namespace

Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text,
                                           LeftOuts* left_out) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const std::string_view begin =
      text.substr(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
  const bool has_lines = begin.starts_with('{') && !is_cut(begin.substr(0, begin.find('\n')));
  const Result<Json> root = read_json(file, text);
  if (root && !has_lines) return read_array(file, *root, folder);
  if (begin.starts_with('{')) return read_lines(file, text, folder, left_out);
  return root.error().clone();
}

Result<AskedKernel> read_source_file(SourceFile asked, const std::string& folder) {
  const auto in_folder = [&folder](const std::string& path) {
    return (std::filesystem::path(folder) / path).string();
  };
  if (!asked.file.empty()) {
    Result<std::string> text = read_file(in_folder(asked.file));
    if (!text) return invalid_manifest(fmt::format("source: {}", text.error().message()));
    asked.source.source = *std::move(text);
  }
  for (std::string& include : asked.source.includes) include = in_folder(include);
  Result<AskedKernel> kernel = AskedKernel::of(std::move(asked.source));
  if (!kernel) return invalid_manifest(fmt::format("source: {}", kernel.error().message()));
  return kernel;
}

}  // namespace cubinery
