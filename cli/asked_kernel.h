// A kernel that a command makes or explains: of a key, or one that is given as text.
#pragma once

#include <string>
#include <variant>

#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "cubinery/kernel_source.h"
#include "cubinery/status.h"

namespace cubinery {

class AskedKernel {
 public:
  AskedKernel() = default;
  AskedKernel(KernelSpec spec);  // implicit: kernels are mostly these
  // kInvalidArgument: its name is none.
  static Result<AskedKernel> of(KernelSource source);

  // "gdn_decode"; of a text that of its function, "scale".
  const std::string& name() const { return name_; }
  // What it is cached under: "gdn_decode;key_dim=128;...", "source;name=scale;...".
  const std::string& key() const { return key_; }
  // What tells it from all others: keys of texts do not know them.
  std::string id() const;
  // The same, but for where include folders are: every machine may have them elsewhere.
  std::string id_anywhere() const;
  // As manifests have it: "spec" or "source", and its JSON.
  std::string kind() const { return is_text() ? "source" : "spec"; }
  std::string json() const;

  Compiler compiler() const;
  bool is_text() const { return std::holds_alternative<KernelSource>(asked_); }

  // Those of the context.
  Result<Explanation> explain(const Context& context) const;
  Result<CompiledKernel> compile(const Context& context) const;
  Result<std::string> listing(const Context& context, Listing form) const;

 private:
  std::variant<KernelSpec, KernelSource> asked_;
  std::string name_;
  std::string key_;
};

}  // namespace cubinery
