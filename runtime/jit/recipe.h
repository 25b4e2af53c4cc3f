// What a kernel is made from, whoever asks for it: the specification of a key, or a text.  Behind
// it contexts know no difference.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/identity.h"
#include "cubinery/fields.h"
#include "cubinery/kernel_source.h"
#include "cubinery/options.h"
#include "runtime/jit/included_files.h"
#include "runtime/jit/nvrtc.h"

namespace cubinery {

struct Recipe {
  Identity identity;   // without the compiler's version
  std::string origin;  // of the text: a file's path, "<embedded>/gdn_decode/gdn_decode.cu", a name
  // What the compiler gets.  Asked for only where something has to be compiled or explained.
  std::function<Result<CompileInput>()> input;
  // Of the function, in the cubin; empty: what was compiled says it, and an entry's metadata.
  std::string symbol;
  // Of the function's one parameter; nullopt: it may have any.
  std::optional<std::size_t> param_bytes;
  unsigned threads = 0;       // of a block; 0: each launch says
  unsigned shared_bytes = 0;  // dynamic, of a block
  bool allow_spills = true;
};

// The options that are the same for every kernel, as they stand in identities.
const std::vector<std::string>& fixed_compile_options(Compiler compiler = Compiler::kNvrtc);

// kInvalidKey, kIo, kCompileFailed: as find_template() says.
Result<Recipe> recipe_of(const KernelSpec& spec, const Options& options, const std::string& arch);

// What the entries of a text say that it includes, given its identity without headers_digest.
using KnownClosures = std::function<std::vector<KnownClosure>(const Identity&)>;

// kInvalidArgument: a name that is none, a text of nothing, an option that is refused.  Errors of
// IncludedFiles::closure_of().  `known`: where folders still have one of these closures, directives
// are not searched for; null: they are.  `included` must live as long as the recipe.
Result<Recipe> recipe_of(const KernelSource& source, IncludedFiles& included,
                         const std::string& arch, const KnownClosures& known = nullptr);

}  // namespace cubinery
