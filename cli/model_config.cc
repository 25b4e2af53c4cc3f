#include "cli/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/print.h"

namespace cubinery {
namespace {

using nlohmann::json;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

// "line 3, column 7" of the byte that a parser stopped at, counted from 1.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

Result<json> parse(std::string_view file, std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    return invalid(fmt::format("{}: not JSON at {}", file, position(text, error.byte)));
  }
}

}  // namespace

const char* const kModelAssumptions =
    R"(--hf-config asks for what vLLM and SGLang serve such a model with.
  from the file: head counts (divided by --tp), head dims, dtype or torch_dtype (for q, k, v, o, a, b and
                 dt_bias; bf16 when missing), mamba_ssm_dtype (for the state; f32 when missing)
  assumed:       A_log in f32; vk states in a pool, i32 indices, negative ones skipped; the gate computed
                 from A_log, a and dt_bias; beta from its logit; q and k normalised in the kernel;
                 for prefill packed sequences, i32 cu_seqlens, no checkpoints
Each field can be replaced, for example with --state-dtype bf16 or --state-location dense --padding none.)";

Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp) {
  std::vector<Request> requests;
  for (const int size : tp) {
    const Result<std::vector<Problem>> problems = problems_for_model(text, size);
    if (!problems) return invalid(fmt::format("{}: {}", file, problems.error().message()));
    for (const Problem& problem : *problems) {
      requests.push_back({problem, fmt::format("{}, tp {}", file, size), /*arch=*/{}});
    }
  }
  return requests;
}

Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text) {
  const Result<json> root = parse(file, text);
  if (!root) return root.error().clone();
  if (!root->is_array()) return invalid(fmt::format("{}: accepted: a JSON array of objects", file));
  const std::vector<std::string>& operators = operator_names();
  std::vector<Request> requests;
  for (json entry : *root) {
    const std::string where = fmt::format("{}, entry {}", file, requests.size() + 1);
    if (!entry.is_object()) {
      return invalid(fmt::format("{}: {}; accepted: an object", where, entry.dump()));
    }
    const json op = entry.value("op", json());
    if (std::find(operators.begin(), operators.end(), op) == operators.end()) {
      return invalid(fmt::format("{}: op = {}; accepted: {}", where, op.dump(), join(operators)));
    }
    const json arch = entry.value("arch", json(""));
    if (!arch.is_string()) {
      return invalid(fmt::format("{}: arch = {}; accepted: {}", where, arch.dump(),
                                 join(known_architectures())));
    }
    entry.erase("op");
    entry.erase("arch");
    const Result<Problem> problem = parse_problem(op.get<std::string>(), entry.dump());
    if (!problem) return invalid(fmt::format("{}: {}", where, problem.error().message()));
    requests.push_back({.problem = *problem, .origin = where, .arch = arch.get<std::string>()});
  }
  return requests;
}

}  // namespace cubinery
