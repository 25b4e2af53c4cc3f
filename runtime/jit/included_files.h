// The files that a source includes, from include folders on the disk.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/trust.h"
#include "codegen/include_closure.h"
#include "cubinery/status.h"

namespace cubinery {

// What an entry keeps of the closure that it was made from: as much as tells that folders still
// have it, without a search for directives.
struct KnownClosure {
  std::string digest;     // IncludeClosure::digest
  std::string questions;  // questions_text() of it
};

// Persistent, in the metadata of entries: the rules, the number of folders, the digest of these
// lines and of what the files have, and each question's answer, folder and name:
//
//   1 3 212df07d199c69407a37d8b8406d1d2a
//   + 0 cute/tensor.hpp
//   - 0 cute/cute/config.hpp
//
// Empty where a name is no text, or all of it is longer than 1 MiB.
std::string questions_text(const IncludeClosure& closure, std::size_t roots);

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

  // Whether closure_of() the query whose closure has these questions would give it: the folders
  // answer each as they did, with the same contents.  False also where a file cannot be read or
  // trusted.
  bool still_give(const std::vector<std::string>& roots, std::string_view questions);

 private:
  class Reader;
  struct Question;

  // Of the lines behind the first; nullopt: one is none.
  static std::optional<std::vector<Question>> questions_in(std::string_view lines,
                                                           std::size_t roots);
  // The lines, each with its file's digest; nullopt: an answer is another one now.
  std::optional<std::string> answers_to(const std::vector<std::string>& roots,
                                        std::span<const Question> questions);

  std::shared_ptr<const IncludeFile> file_of(std::string text);

  const Trust trust_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Directives>> known_;  // by digest
};

}  // namespace cubinery
