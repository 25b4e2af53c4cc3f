// What makes cubins of texts: NVRTC (nvrtc.h) or nvcc (nvcc.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

struct CompileInput {
  std::string path;  // shown in messages: "gdn_decode/gdn_decode.cu"
  std::string source;
  // What #include finds: name as the #include line writes it, text.
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::string> options;
  std::string name;  // of a __global__ function, which the text names its way; empty: not asked for
  bool wants_ptx = false;
  // NVRTC: whether the headers that the source includes before its first token are precompiled, for
  // this source and for others that begin with them (runtime/jit/precompiled_headers.h).  A choice:
  // it takes 400 MB of the process's memory, a file of up to that size that has no name, and a
  // quarter of the first source's time more; the others take an eighth of theirs with CuTe.  Cubins
  // are the same.  An NVRTC that cannot (before 12.8) compiles as ever.
  bool share_headers = false;
  // With it: names that were looked for and that no header has (IncludeClosure::absent).
  std::vector<std::string> absent = {};
  // What an entry keeps of the headers' closure (questions_text()); empty: nothing.
  std::string questions = {};
};

// What became of CompileInput::share_headers.
enum class HeaderSharing : int {
  kNone,  // not asked for, or not possible
  kMade,  // this compilation has precompiled them
  kUsed,  // it took what another one made
};

struct CompileOutput {
  std::string cubin;
  std::string log;     // ptxas's resource lines and any warnings
  std::string symbol;  // of that function in the cubin
  HeaderSharing headers = HeaderSharing::kNone;
  std::string ptx{};  // where it is wanted
};

// Thread-safe.
class CubinCompiler {
 public:
  virtual ~CubinCompiler() = default;
  // kCompileFailed with the log; kUnsupported: it does not know the architecture or an option.
  virtual Result<CompileOutput> compile(const CompileInput& input) const = 0;
  // As identities have it: "13.0.88".
  virtual const std::string& version() const = 0;
};

// A compiler that is opened when it is first asked for.  Thread-safe.
class LazyCompiler {
 public:
  using Opened = Result<std::shared_ptr<const CubinCompiler>>;

  // `open`: how; called once, whoever asks first.
  const Opened& get(const std::function<Opened()>& open) const {
    std::call_once(once_, [&] {
      opened_.emplace(open());
      is_known_ = true;
    });
    return *opened_;
  }
  // Whether it has been asked for: from then on the result does not change.
  bool is_known() const { return is_known_; }

 private:
  mutable std::once_flag once_;
  mutable std::optional<Opened> opened_;
  mutable std::atomic<bool> is_known_{false};
};

}  // namespace cubinery
