#include "capi/last_error.h"

#include <array>
#include <cstdio>

#include "cubinery/c_api.h"

namespace cubinery::capi {
namespace {

struct LastError {
  Status status;
  std::array<char, 256> internal{};  // the message, where status is OK
};
thread_local LastError last;

}  // namespace

int report(Status status) noexcept {
  if (status.ok()) return CUBINERY_OK;
  last.status = std::move(status);
  return static_cast<int>(last.status.code());
}

int report_internal(const char* message) noexcept {
  last.status = {};
  std::snprintf(last.internal.data(), last.internal.size(), "internal error: %s", message);
  return CUBINERY_INTERNAL;
}

}  // namespace cubinery::capi

using cubinery::capi::last;

// The texts of a Status end with '\0': they are those of a std::string, or "".
const char* cubinery_last_error(void) {
  return last.status.ok() ? last.internal.data() : last.status.message().data();
}

const char* cubinery_last_error_log(void) { return last.status.log().data(); }
