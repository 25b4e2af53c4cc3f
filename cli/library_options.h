// The library's Options on the command line; flags go over the environment.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "cli/plan.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

class LibraryOptions {
 public:
  enum class Scope { kCache, kCompiler };

  // Options of the cache, and with kCompiler those of NVRTC and of templates.  Requires: this
  // object outlives the parse and does not move.
  void add_to(CLI::App& app, Scope scope);

  // Options::from_env() and the flags over it, for no device.  The log goes to stderr, information
  // only with --verbose.  Errors of from_env(); kInvalidArgument: a folder of templates that is not
  // there.
  Result<Options> resolve() const;

  bool verbose() const { return verbose_; }

  // Whether each --template-dir has something for these kernels: one that has nothing is misspelt.
  // (A folder of the environment is there for every command.)  kInvalidArgument.
  Status check_template_dirs(const std::vector<Job>& jobs) const;

 private:
  std::string cache_dir_;
  std::string cache_layers_;
  std::string nvrtc_;
  std::string nvcc_;
  std::vector<std::string> template_dirs_;
  std::string trust_;
  bool trust_shared_dirs_ = false;
  bool verbose_ = false;
};

}  // namespace cubinery
