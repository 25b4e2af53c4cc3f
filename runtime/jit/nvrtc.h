// libnvrtc, opened at run time: source text to cubin.
#pragma once

#include <nvrtc.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"
#include "runtime/jit/cubin_compiler.h"
#include "runtime/jit/dynamic_library.h"
#include "runtime/jit/precompiled_headers.h"

namespace cubinery {

// Those of an identity's options that NVRTC of this version is given; all where it is empty.  Left
// out is what it does not know and does all the same: NVRTC 12.8 has no cache to go without.
std::vector<std::string> options_given(std::vector<std::string> options, std::string_view version);

// Immutable after open() but for precompiled headers; safe to use from any thread, compilations run
// in parallel.
class Nvrtc : public CubinCompiler {
 public:
  // Opens `path`, or the first library found in the usual places, one of CUDA 13 or newer before
  // those of CUDA 12, and compiles an empty kernel to learn the build number, which NVRTC tells in
  // its output only. kUnsupported: not found (says where it looked), not NVRTC, or too old.
  // A library that others than those of `trust` could have written is passed over
  // (runtime/jit/native_code.h), unless the loader's search path led to it.
  // `driver`: Driver::version() of the driver that loads what it makes, which takes cubins of its
  // own generation and older ones; 0: any.
  static Result<std::shared_ptr<const Nvrtc>> open(const std::string& path, const Trust& trust,
                                                   int driver);
  // The same of these libraries instead of those in the usual places.
  static Result<std::shared_ptr<const Nvrtc>> open_newest(
      const std::vector<std::string>& candidates, const Trust& trust, int driver);

  // kCompileFailed with the log; kUnsupported when this NVRTC does not know the architecture.
  // Options: options_given() of the input's.
  Result<CompileOutput> compile(const CompileInput& input) const override;

  const std::string& version() const override { return version_; }  // "13.0.88"
  const std::string& path() const { return path_; }
  // Those libraries, and why.
  const std::vector<std::string>& passed_over() const { return passed_over_; }

  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

 private:
  Nvrtc() = default;
  // Whether it is open; else `why_not` or passed_over_ says why not.
  bool open_library(const std::string& candidate, const Trust& trust, std::string* why_not);
  Status load_newest(const std::vector<std::string>& candidates, const Trust& trust, int driver);
  Status not_found(const std::vector<std::string>& candidates, std::string why_not) const;
  Status load(int driver);
  Status load_functions();
  Status check_version(int driver);
  Status complete(const Trust& trust);
  void open_builtins(const Trust& trust);
  Status find_build();
  void load_optional();
  bool can_precompile() const;
  nvrtcResult create(const CompileInput& input, nvrtcProgram* program) const;
  std::string log_of(nvrtcProgram program) const;
  nvrtcResult take_made(const CompileInput& input, nvrtcProgram program,
                        CompileOutput* output) const;
  void grow_heap() const;
  // With options that are no part of the input.  *precompiled: whether headers were.
  Result<CompileOutput> compile_with(const CompileInput& input,
                                     const std::vector<std::string>& more,
                                     bool* precompiled = nullptr) const;
  Result<CompileOutput> compile_shared(const CompileInput& input) const;

  DynamicLibrary library_;
  DynamicLibrary builtins_;
  std::string path_;
  bool is_by_path_ = false;  // rather than by the loader's search path
  std::vector<std::string> passed_over_;
  int major_ = 0;
  std::string version_;
#define CUBINERY_NVRTC_FUNCTIONS(F) \
  F(nvrtcVersion)                   \
  F(nvrtcGetErrorString)            \
  F(nvrtcCreateProgram)             \
  F(nvrtcDestroyProgram)            \
  F(nvrtcCompileProgram)            \
  F(nvrtcGetProgramLogSize)         \
  F(nvrtcGetProgramLog)             \
  F(nvrtcAddNameExpression)         \
  F(nvrtcGetLoweredName)            \
  F(nvrtcGetCUBINSize)              \
  F(nvrtcGetCUBIN)                  \
  F(nvrtcGetPTXSize)                \
  F(nvrtcGetPTX)
#define CUBINERY_DECLARE(function) decltype(&::function) function##_ = nullptr;
  CUBINERY_NVRTC_FUNCTIONS(CUBINERY_DECLARE)
  // Null in an NVRTC that lacks them: it precompiles no headers.
#define CUBINERY_NVRTC_OPTIONAL_FUNCTIONS(F) \
  F(nvrtcGetPCHHeapSize)                     \
  F(nvrtcSetPCHHeapSize)                     \
  F(nvrtcGetPCHCreateStatus)
  CUBINERY_NVRTC_OPTIONAL_FUNCTIONS(CUBINERY_DECLARE)
#undef CUBINERY_DECLARE
  const std::unique_ptr<PrecompiledHeaders> precompiled_ = std::make_unique<PrecompiledHeaders>();
};

}  // namespace cubinery
