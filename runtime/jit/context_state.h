// What a Context shares.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/store.h"
#include "codegen/arch.h"
#include "cubinery/context.h"
#include "results/tuning_files.h"
#include "runtime/jit/cubin_compiler.h"
#include "runtime/jit/device.h"
#include "runtime/jit/owner_process.h"
#include "runtime/jit/recipe.h"
#include "runtime/jit/recorder.h"

namespace cubinery {

// Thread-safe.
struct Context::State {
  const OwnerProcess process{};
  Options options;
  std::string arch;
  std::shared_ptr<const Device> device;  // null with kNoDevice
  std::unique_ptr<Store> store;          // null without a disk cache
  mutable TuningFiles tuning_files;
  std::unique_ptr<IncludedFiles> included;
  std::unique_ptr<Recorder> recorder;  // null: nothing is recorded

  // What is wanted, a key's kernel or a text's, as the rest takes it.  kUnsupported in a forked
  // child; `to_load`: also without a device.
  Result<Recipe> recipe(const KernelSpec& spec, bool to_load = false) const;
  Result<Recipe> recipe(const KernelSource& source, bool to_load = false) const;

  // `waits`: of the call that this is part of, such as an operator's preparation; null: of this
  // one.
  Result<CompiledKernel> compile(const Recipe& recipe, WaitBudget* waits = nullptr) const;
  Result<Kernel> get(const Recipe& recipe) const { return get(recipe, now(), nullptr); }
  // The same for one of many: directories need not be listed again that were listed since then.
  Result<Kernel> get(const Recipe& recipe, Names::Moment since, WaitBudget* waits) const;
  // nullopt where the kernel is neither in memory nor on disk.
  Result<std::optional<Kernel>> get_cached(const Recipe& recipe) const;
  Result<Explanation> explain(const Recipe& recipe) const;
  Result<std::string> listing(const Recipe& recipe, Listing form) const;
  // What came of what a user asked for: for the recorder.
  template <class Asked, class Made>
  Result<Made> recorded(const Asked& asked, Result<Made> made) const {
    if (recorder && can_be_had(made)) recorder->add(asked);
    return made;
  }
  CacheStats stats() const;
  Names::Moment now() const;

  // Opened when it is first asked for.  kUnsupported: there is none, or the context is offline.
  // Requires: process.is_current(), or knows(it).
  const LazyCompiler::Opened& compiler(Compiler which) const;
  // Whether it has been asked for.
  bool knows(Compiler which) const { return lazy(which).is_known(); }
  // Its version; empty when there is none.
  std::string version_of(Compiler which) const;

 private:
  // What is wanted of a kernel that is not in memory.
  struct Need {
    bool may_make = true;
    Names::Moment since = Names::kAnyTime;  // where it cannot be made: missing at that moment
    WaitBudget* waits = nullptr;
  };
  // A cubin and what is known of it.
  struct Made {
    CompiledKernel compiled;
    std::string cubin;
    std::string questions = {};  // of a text that was compiled: CompileInput::questions
  };
  // One kernel of the memory table.  Its mutex makes concurrent callers of one key share one
  // compilation.
  struct Slot {
    std::mutex mutex;
    std::optional<CompiledKernel> compiled;
    std::optional<Kernel> kernel;
    std::string cubin;  // kept only while it is neither loaded nor on disk
  };

  // A kernel's place in the memory table, locked.
  struct Held {
    std::shared_ptr<Slot> slot;
    std::unique_lock<std::mutex> lock;  // ends before the slot may
  };

  Status check_device(std::string_view key) const;
  Result<Held> hold(const Identity& identity) const;
  std::shared_ptr<Slot> slot_of(const Identity& identity) const;

  // Judges what is on disk.  What it refuses is passed over as a damaged entry is, for the next, or
  // for the compiler.
  class Judge {
   public:
    // `device`: null: entries are not loaded.
    Judge(const Recipe& recipe, std::shared_ptr<const Device> device)
        : recipe_(recipe), device_(std::move(device)) {}

    // As Store::lookup() takes it: why an entry does not fit its identity or the kernel's
    // parameter, or why the driver refuses it, which has the last word.
    std::optional<std::string> operator()(const Entry& entry);
    // Of the entry that was judged last, where it was not refused.
    const KernelInfo& info() const { return info_; }

    // Of two errors the one that says more: what is wrong with an entry, where nothing can be
    // compiled in its place.
    Status telling(Status error);
    // Of what was supplied: the one that the driver made of an entry, or a new one.
    Result<Kernel> kernel_of(const Made& made);

   private:
    const Recipe& recipe_;
    std::shared_ptr<const Device> device_;
    KernelInfo info_{};
    std::optional<Kernel> kernel_;
    Status refusal_;  // of the first entry that was refused
    Status failure_;  // of an entry that is good
  };

  // The compiler's version where it decides which of several entries is taken; empty: any will do.
  std::string deciding_version(const Identity& request) const;
  std::optional<Made> find(const Identity& identity, Names::Moment since, Judge& judge) const;
  // From memory, disk or the compiler, the first that has it.  nullopt: without `may_make`, where
  // it would have to be compiled.
  Result<std::optional<Made>> supply(const Recipe& recipe, const Held& held, Need need,
                                     Judge& judge) const;
  Result<std::optional<Kernel>> load(const Recipe& recipe, Need need) const;
  Result<Made> make_missing(const Recipe& recipe, WaitBudget* waits, Judge& judge) const;
  Result<Made> make_once(const Recipe& recipe, WaitBudget* waits, Judge& judge) const;
  // `identity`: the recipe's, with the compiler's version.
  Result<Made> build(const Recipe& recipe, const Identity& identity) const;
  Status not_cached(const Identity& identity) const;
  // What puts a kernel into the cache, for people.
  std::string remedy(const Identity& identity) const;
  void explain_miss(const Identity& identity, Explanation* explanation) const;

  const LazyCompiler& lazy(Compiler which) const {
    return which == Compiler::kNvcc ? nvcc_ : nvrtc_;
  }
  LazyCompiler::Opened open(Compiler which) const;

  LazyCompiler nvrtc_;
  LazyCompiler nvcc_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<Slot>>
      table_;  // by identity text; guarded by mutex_
  mutable std::atomic<std::uint64_t> memory_hits_{0};
  mutable std::atomic<std::uint64_t> disk_hits_{0};
  mutable std::atomic<std::uint64_t> misses_{0};
  mutable std::atomic<std::uint64_t> compiles_{0};
};

// Why the cubin of an entry does not fit its identity; nullopt when it does.
std::optional<std::string> cubin_mismatch(const Entry& entry);

}  // namespace cubinery
