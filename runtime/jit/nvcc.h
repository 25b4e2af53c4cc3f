// nvcc, the toolkit's own compiler: for what NVRTC cannot.  A process, started without a shell and
// with an environment of its own: NVCC_APPEND_FLAGS, CPATH and their like are not seen.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"
#include "runtime/jit/cubin_compiler.h"

namespace cubinery {

// Where nvcc may lie, of several toolkits the highest version first.  `root`: "/", but for tests.
std::vector<std::string> nvcc_places(const std::string& root);

// Immutable after open(); safe to use from any thread, compilations run in parallel.
class Nvcc : public CubinCompiler {
 public:
  // The program at `path`, or the first in the usual places; asks it and the host compiler that it
  // will find for their versions.  kUnsupported: there is none (says where it was looked for),
  // there is no host compiler, others than those of `trust` could have written either, or `driver`,
  // which loads what it makes, is of an older CUDA: Driver::version(); 0: any.
  static Result<std::shared_ptr<const Nvcc>> open(const std::string& path, const Trust& trust,
                                                  int driver);

  // The input's headers are written beside its source and found before all else, the library's
  // "common/..." as well.  kCompileFailed with the log; also where nvcc read a file that is none of
  // them, nor the toolkit's, nor the system's (/usr/include, /usr/lib): no identity would cover it.
  // kIo: no temporary folder, or no room in it.
  Result<CompileOutput> compile(const CompileInput& input) const override;

  // nvcc's and, behind it, the host compiler's, which defines macros and finds system headers:
  // "13.0.88.12.2.0" for nvcc 13.0.88 with g++ 12.2.0.
  const std::string& version() const override { return version_; }
  const std::string& path() const { return path_; }

 private:
  Nvcc() = default;
  Status find_versions(const Trust& trust);
  std::vector<std::string> environment(const std::string& temporary) const;
  Status check_reached(const std::string& dependencies, const std::string& own) const;

  std::string path_;
  std::string toolkit_;  // the folder above its bin
  std::string version_;
};

// Of such a version the first: "13.0.88".
std::string_view toolkit_version_in_nvcc(std::string_view version);

// The files that a makefile rule names behind its target, as `nvcc -MD` writes it.
std::vector<std::string> dependencies_in(std::string_view rule);

}  // namespace cubinery
