// The files that a source includes, from include folders on the disk.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cache/trust.h"
#include "codegen/include_closure.h"
#include "cubinery/status.h"

namespace cubinery {

// Thread-safe.  Every call reads the files, since their contents are what a kernel is made from;
// what was seen in a text is kept, so that it is not searched for directives again.
class IncludedFiles {
 public:
  explicit IncludedFiles(Trust trust = {}) : trust_(std::move(trust)) {}

  // include_closure() of folders on the disk, which come in the order of the compiler's -I, and
  // behind them of the library's device headers ("common/...", "cubinery/..."); a folder that is
  // not there has no files.  Symbolic links are followed.
  // kIo: a file that is there cannot be read or is larger than Env::kMaxFileBytes, or others than
  // those of the trust could have written it, its folder, or a folder between that and the root
  // (cache/trust.h).
  Result<IncludeClosure> closure_of(IncludeQuery query);

 private:
  class Reader;

  std::shared_ptr<const IncludeFile> file_of(std::string text);

  const Trust trust_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Directives>> known_;  // by digest
};

}  // namespace cubinery
