// Where kernels come from: compiler, cache and loaded kernels of one device.
//
//   Context context = Context::create(Options::from_env().value()).value();
//   Kernel kernel = context.get(RowScaleKey{.dtype = DType::kF16}).value();  // when starting
//   kernel.launch(stream, {.grid = {rows}}, RowScaleParams{x, y, cols}).value();
//
// RowScaleKey is that of cubinery/fields.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/fields.h"
#include "cubinery/kernel.h"
#include "cubinery/kernel_source.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// Where a cubin was found.
enum class Source : int { kMemory, kDisk, kCompiled };
const char* to_string(Source source);

struct CompiledKernel {
  KernelInfo info;
  Source source = Source::kCompiled;
  std::string
      path{};  // the cache entry; empty when there is none (no disk cache, or it cannot be written)
};

// Counts since the context was created.
struct CacheStats {
  std::uint64_t memory_hits = 0;
  std::uint64_t disk_hits = 0;
  std::uint64_t misses = 0;  // neither in memory nor on disk
  std::uint64_t compiles = 0;
  std::uint64_t damaged = 0;  // entries passed over: damaged, foreign, newer, refused by the driver
  std::uint64_t failed_writes = 0;  // entries that could not be published
};

// Why a kernel is, or is not, in the cache.
struct Explanation {
  std::string identity{};  // the full text that the entry is stored under
  // The template: a file, or "<embedded>/gdn_decode/gdn_decode.cu".  Of a text "scale.cu".
  std::string source_path{};
  std::string source{};                // its text
  std::vector<std::string> options{};  // NVRTC's options, CUBINERY_KEY among them
  bool cached = false;
  std::string path{};  // the entry that was found, or where it would be
  KernelInfo info;     // of the entry that was found
  // Not cached: the most similar entry, and "field: theirs -> ours" for what differs.  Nothing
  // differs: it is the entry, and cannot be used (damage, permissions).
  std::string nearest_path{};
  std::vector<std::string> differences{};
};

// A kernel as text.
enum class Listing : int {
  kPtx,   // what the compiler hands to the assembler; compiled anew
  kSass,  // what the GPU executes, as the toolkit's nvdisasm prints the cubin
};

// Immutable apart from its caches; copies share them.  All methods are safe to call from any
// thread, and concurrent callers of one key share one compilation.  Nothing is global: two
// contexts, for two devices or for the same one, know nothing of each other but the files they
// share.
//
// A context belongs to the process that made it.  In a child of fork(), also one that was forked
// while a kernel compiled, every call that finds, compiles, loads or tunes is kUnsupported, and
// does not hang; stats() and the destructor work; a launch is kDriver, as CUDA refuses it.  Make
// contexts after fork().
class Context {
 public:
  // Opens the driver and makes the device's primary context (kept until the last copy of this
  // context and of its kernels is gone); with kNoDevice neither happens.
  //
  // kInvalidArgument: an unknown or missing arch, a device that is not there, an element of
  // Options::paths that is of neither form.
  // kUnsupported: no driver, one that is too old, a device without a known architecture, or an arch
  // whose cubins do not run on the device.
  // A missing NVRTC or an unusable cache directory is not an error here: see get() and
  // Options::log.
  static Result<Context> create(Options options);

  // The kernel of `key`: from memory, from the cache, or compiled and cached.  Slow; call it off
  // the request path.
  //
  // kInvalidKey (also where the kernel's parameter has not the size of the Params struct),
  // kCompileFailed (with log), kNotCached (offline), kUnsupported (no NVRTC, or one that does not
  // know the architecture; kNoDevice; a forked child), kDriver (the driver refused the cubin), kIo
  // (a template folder that cannot be read).  A cache that cannot be read or written is never an
  // error.
  template <class Key>
  Result<Kernel> get(const Key& key) const {
    Result<KernelSpec> spec = spec_of(key);
    if (!spec) return std::move(spec).error();
    return get(*spec);
  }
  Result<Kernel> get(const KernelSpec& spec) const;
  // The same of a text: context.get({.name = "scale", .source = text}).  Besides, kInvalidArgument:
  // a name that is none, a text of nothing or with a file that cannot be included, an option that
  // is refused; kCompileFailed: no such function, two of the name, or spills that are not allowed.
  Result<Kernel> get(const KernelSource& source) const;

  // Makes sure that the cache holds the kernel, without loading it: needs no GPU and no driver.
  // Errors as for get().
  template <class Key>
  Result<CompiledKernel> compile(const Key& key) const {
    Result<KernelSpec> spec = spec_of(key);
    if (!spec) return std::move(spec).error();
    return compile(*spec);
  }
  Result<CompiledKernel> compile(const KernelSpec& spec) const;
  Result<CompiledKernel> compile(const KernelSource& source) const;

  // The same for every kernel that an operator for the problem may launch on any GPU of the
  // context's architecture: context.compile(gdn::DecodeProblem{...}).  They are compiled side by
  // side, and Options::log is told of each.  Errors of the problem's kernels(), or the first of the
  // above.  Of many problems: gdn::compile() (cubinery/gdn_models.h).
  template <class Problem>
  requires requires { typename Problem::Operator; }
  Result<std::vector<CompiledKernel>> compile(const Problem& problem) const {
    return Problem::Operator::compile(*this, problem);
  }

  // Why `spec` is or is not in the cache.  Compiles nothing.  kIo: a template folder cannot be
  // read; kInvalidKey: there is no such template.
  Result<Explanation> explain(const KernelSpec& spec) const;
  Result<Explanation> explain(const KernelSource& source) const;

  // The kernel as text.  Errors as for get() and, of kSass, kUnsupported: there is no nvdisasm
  // beside nvcc (Options::nvcc_path).
  Result<std::string> listing(const KernelSpec& spec, Listing form) const;
  Result<std::string> listing(const KernelSource& source, Listing form) const;

  // An operator, ready to launch: context.prepare(gdn::DecodeProblem{...}).  Errors are those of
  // the problem's Operator::create().
  template <class Problem>
  auto prepare(const Problem& problem) const {
    return Problem::Operator::create(*this, problem);
  }

  // "sm_90a".
  const std::string& arch() const&;
  std::string arch() && { return std::as_const(*this).arch(); }
  // The device ordinal, or kNoDevice.
  int device() const;
  // Streaming multiprocessors of the device; 0 with kNoDevice.
  int sm_count() const;
  // The compiler's version, "13.0.88"; kUnsupported says where it was looked for, or that the
  // context is offline.  Opens it, which contexts do when they first need it.
  Result<std::string> nvrtc_version() const;
  CacheStats stats() const;

  struct State;
  // For the library itself.
  const State& state() const { return *state_; }

 private:
  explicit Context(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Architectures that cubins can be compiled for, "sm_80" first.
const std::vector<std::string>& known_architectures();

}  // namespace cubinery
