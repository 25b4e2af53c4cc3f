// Specifications of kernels as text.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "codegen/identity.h"
#include "cubinery/fields.h"

namespace cubinery {
namespace {

constexpr const char* kDigest = "digest";

nlohmann::ordered_json without_digest(const KernelSpec& spec) {
  return {{"kernel", spec.kernel},
          {"canonical", spec.canonical},
          {"initializer", spec.initializer},
          {"threads", spec.threads},
          {"shared_bytes", spec.shared_bytes},
          {"param_bytes", spec.param_bytes}};
}

std::string text_of(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status bad_spec(std::string_view why) {
  return Status(Code::kInvalidKey,
                fmt::format("spec: {}; accepted: what to_json() prints of a KernelSpec", why));
}

template <class Integer>
bool read_number(const std::string& text, Integer* value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

std::string to_json(const KernelSpec& spec) {
  nlohmann::ordered_json object = without_digest(spec);
  object[kDigest] = digest_of(text_of(object));
  return text_of(object);
}

Result<KernelSpec> kernel_spec_from_json(std::string_view json) {
  auto pairs = internal::parse_flat_json("spec", json);
  if (!pairs) return std::move(pairs).error();
  const std::map<std::string, std::string> values(pairs->begin(), pairs->end());
  KernelSpec spec;
  nlohmann::ordered_json names = without_digest(spec);
  names[kDigest] = "";
  for (const auto& [name, ignored] : names.items()) {
    if (!values.contains(name)) return bad_spec(fmt::format("no field {}", name));
  }
  if (values.size() != names.size()) return bad_spec("fields besides its own");
  spec.kernel = values.at("kernel");
  spec.canonical = values.at("canonical");
  spec.initializer = values.at("initializer");
  if (!read_number(values.at("threads"), &spec.threads) ||
      !read_number(values.at("shared_bytes"), &spec.shared_bytes) ||
      !read_number(values.at("param_bytes"), &spec.param_bytes)) {
    return bad_spec("a size that is not a number");
  }
  if (values.at(kDigest) != digest_of(text_of(without_digest(spec)))) {
    return internal::key_error(
        Code::kInvalidKey,
        fmt::format("spec: {} was changed since it was printed; accepted: what to_json() prints of "
                    "a KernelSpec",
                    spec.kernel),
        spec.canonical);
  }
  return spec;
}

}  // namespace cubinery
