#include "runtime/jit/included_files.h"

#include <fmt/format.h>

#include "codegen/bundle.h"
#include "codegen/identity.h"

namespace cubinery {
namespace {

bool is_header(std::string_view path) {
  return path.starts_with("common/") || path.starts_with("cubinery/");
}

// The device headers inside the library, which change with its version alone.
const IncludedFiles& device_headers() {
  static const IncludedFiles kHeaders = [] {
    IncludedFiles headers;
    for (const auto& [path, text] : embedded_templates()) {
      if (is_header(path)) headers.files.emplace_back(path, text);
    }
    headers.digest = headers_digest(embedded_templates());
    return headers;
  }();
  return kHeaders;
}

}  // namespace

Result<IncludedFiles> included_files(std::string_view source,
                                     const std::vector<std::string>& includes,
                                     const Trust& /*trust*/) {
  if (!includes.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("includes has \"{}\"; accepted: none, the text has its own code and "
                              "the library's headers, \"common/...\" and \"cubinery/...\"",
                              includes.front()));
  }
  if (!foreign_directive(source, [](std::string_view) { return false; })) {
    return IncludedFiles{.files = {}, .digest = digest_of("")};
  }
  const TemplateFiles& embedded = embedded_templates();
  const std::optional<std::string> foreign = foreign_directive(source, [&](std::string_view name) {
    return is_header(name) && embedded.find(name) != embedded.end();
  });
  if (!foreign) return device_headers();
  return Status(Code::kInvalidArgument,
                fmt::format("source: {}: is not there, and its changes would go unseen; accepted: "
                            "the library's headers, \"common/...\" and \"cubinery/...\"",
                            *foreign));
}

}  // namespace cubinery
