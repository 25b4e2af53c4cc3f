#include "cli/asked_kernel.h"

#include <utility>

#include "codegen/source_name.h"

namespace cubinery {

AskedKernel::AskedKernel(KernelSpec spec)
    : asked_(std::move(spec)),
      name_(std::get<KernelSpec>(asked_).kernel),
      key_(std::get<KernelSpec>(asked_).canonical) {}

Result<AskedKernel> AskedKernel::of(KernelSource source) {
  Result<std::string> name = plain_name(source.name);
  if (!name) return std::move(name).error();
  AskedKernel kernel;
  kernel.name_ = *std::move(name);
  kernel.key_ = source_key(source);
  kernel.asked_ = std::move(source);
  return kernel;
}

std::string AskedKernel::id() const { return is_text() ? json() : key_; }

std::string AskedKernel::id_anywhere() const {
  if (!is_text()) return key_;
  KernelSource source = std::get<KernelSource>(asked_);
  source.includes.clear();
  return to_json(source);
}

Compiler AskedKernel::compiler() const {
  const auto* source = std::get_if<KernelSource>(&asked_);
  return source != nullptr ? source->compiler : Compiler::kNvrtc;
}

std::string AskedKernel::json() const {
  return std::visit([](const auto& asked) { return to_json(asked); }, asked_);
}

Result<Explanation> AskedKernel::explain(const Context& context) const {
  return std::visit([&](const auto& asked) { return context.explain(asked); }, asked_);
}

Result<CompiledKernel> AskedKernel::compile(const Context& context) const {
  return std::visit([&](const auto& asked) { return context.compile(asked); }, asked_);
}

Result<std::string> AskedKernel::listing(const Context& context, Listing form) const {
  return std::visit([&](const auto& asked) { return context.listing(asked, form); }, asked_);
}

}  // namespace cubinery
