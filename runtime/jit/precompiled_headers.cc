#include "runtime/jit/precompiled_headers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/bundle.h"
#include "codegen/directives.h"
#include "codegen/identity.h"
#include "runtime/jit/nvrtc.h"

namespace cubinery {
namespace {

std::string options_of(const CompileInput& input) {
  return fmt::format("{}", fmt::join(input.options, "\n"));
}

// Whether the compiler would see the same headers now.
bool is_made_from(const PrecompiledHeaders::Made& made, const CompileInput& input) {
  std::size_t same = 0;
  for (const auto& [name, text] : input.headers) {
    const auto header = made.headers.find(name);
    if (header == made.headers.end()) {
      const bool appeared =
          std::find(made.absent.begin(), made.absent.end(), name) != made.absent.end();
      if (appeared) return false;
    } else {
      if (header->second != digest_of(text)) return false;
      ++same;
    }
  }
  return same == made.headers.size();
}

}  // namespace

std::string PrecompiledHeaders::Made::path() const {
  return fmt::format("/proc/self/fd/{}", file.get());
}

std::string PrecompiledHeaders::beginning_of(const std::string& source) {
  const Directives directives(source);
  const std::string_view text = std::string_view(source).substr(0, directives.first_token());
  const auto includes = [&](const Directive& directive) {
    return directive.kind == Directive::Kind::kInclude && directive.at < text.size();
  };
  const auto& list = directives.list();
  return std::any_of(list.begin(), list.end(), includes) ? without_comments(text) : "";
}

std::shared_ptr<const PrecompiledHeaders::Made> PrecompiledHeaders::find(
    const CompileInput& input, const std::string& beginning) const {
  const std::lock_guard lock(mutex_);
  const std::string options = options_of(input);
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    const bool fits = (*made)->options == options && beginning.starts_with((*made)->beginning);
    if (fits && is_made_from(**made, input)) return *made;
  }
  return nullptr;
}

void PrecompiledHeaders::keep(const CompileInput& input, const std::string& beginning,
                              Descriptor file) {
  auto made = std::make_shared<Made>(Made{.options = options_of(input),
                                          .beginning = beginning,
                                          .headers = {},
                                          .absent = input.absent,
                                          .file = std::move(file)});
  for (const auto& [name, text] : input.headers) made->headers.emplace(name, digest_of(text));
  const std::lock_guard lock(mutex_);
  if (made_.size() == kMaxKept) made_.erase(made_.begin());
  made_.push_back(std::move(made));
}

}  // namespace cubinery
