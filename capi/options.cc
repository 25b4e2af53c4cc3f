// CubineryOptions: the fields of Options, set by name.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "capi/arguments.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "capi/named_fields.h"
#include "runtime/jit/options_text.h"

namespace cubinery::capi {
namespace {

// Every field but `log`, which is no text.
constexpr std::tuple kOptions{
    Field{"device", &Options::device},
    Field{"arch", &Options::arch},
    Field{"offline", &Options::offline},
    Field{"nvrtc_path", &Options::nvrtc_path},
    Field{"nvcc_path", &Options::nvcc_path},
    Field{"driver_path", &Options::driver_path},
    Field{"cache_dir", &Options::cache_dir},
    Field{"cache_layers", &Options::cache_layers},
    Field{"use_disk_cache", &Options::use_disk_cache},
    Field{"cache_limit_bytes", &Options::cache_limit_bytes},
    Field{"trust_shared_dirs", &Options::trust_shared_dirs},
    Field{"trust", &Options::trust},
    Field{"lock_wait", &Options::lock_wait},
    Field{"template_dirs", &Options::template_dirs},
    Field{"paths", &Options::paths},
    Field{"record", &Options::record},
};

// Each sets *field to what `text` says, or returns what is accepted.
const char* set(std::string_view text, int* field) {
  return parse_integer(text, field) && *field >= kNoDevice ? nullptr : "an ordinal, or -1 for none";
}

const char* set(std::string_view text, std::uint64_t* field) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return kBytesAccepted;
  *field = *bytes;
  return nullptr;
}

const char* set(std::string_view text, bool* field) {
  return parse_switch(text, field) ? nullptr : "0 or 1";
}

const char* set(std::string_view text, std::chrono::milliseconds* field) {
  std::chrono::milliseconds::rep count = 0;
  if (!parse_integer(text, &count) || count < 0) return "a number of milliseconds";
  *field = std::chrono::milliseconds(count);
  return nullptr;
}

const char* set(std::string_view text, Trust* field) {
  std::optional<Trust> trust = parse_trust(text);
  if (!trust) return kTrustAccepted;
  *field = *std::move(trust);
  return nullptr;
}

const char* set(std::string_view text, std::string* field) {
  *field = text;
  return nullptr;
}

const char* set(std::string_view text, std::vector<std::string>* field) {
  *field = split_at_colons(text);
  return nullptr;
}

}  // namespace
}  // namespace cubinery::capi

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_options_create(CubineryOptions** options) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("options", options));
    Result<Options> from_env = Options::from_env();
    if (!from_env) return std::move(from_env).error();
    *options = new CubineryOptions{*std::move(from_env)};
    return {};
  });
}

void cubinery_options_destroy(CubineryOptions* options) { cubinery::capi::destroy(options); }

int cubinery_options_set(CubineryOptions* options, const char* field, const char* value) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("options", options));
    CUBINERY_RETURN_IF_ERROR(not_null("field", field));
    CUBINERY_RETURN_IF_ERROR(not_null("value", value));
    return set_field({"Options", "::", field, fmt::format("\"{}\"", value)}, kOptions,
                     &options->value, [&](auto* to) { return set(value, to); });
  });
}

int cubinery_options_set_log(CubineryOptions* options, CubineryLog log, void* user) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("options", options));
    options->value.log = nullptr;
    if (log == nullptr) return {};
    options->value.log = [log, user](LogLevel level, std::string_view text) {
      log(static_cast<int>(level), std::string(text).c_str(), user);
    };
    return {};
  });
}
