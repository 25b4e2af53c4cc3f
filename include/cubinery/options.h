// How a Context is set up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

enum class LogLevel : int { kInfo, kWarning };

// No GPU: a context that compiles for `Options::arch` and fills the cache, and loads nothing.
inline constexpr int kNoDevice = -1;

// Whose cubins, tuning files, templates and compilers are loaded besides our own and root's.  All
// of them are code: whoever can write them runs code as you.
struct Trust {
  // Anybody's, also where everybody can write.
  bool everybody = false;
  // Ids of users; and of groups, whose members may own and write what has their group.
  std::vector<std::uint32_t> users{};
  std::vector<std::uint32_t> groups{};
};

struct Options {
  // CUDA device ordinal, or kNoDevice.
  int device = 0;
  // Architecture to compile for: "sm_90a".  Empty: the device's own.  Required with kNoDevice; with
  // a device it must be one whose cubins run there.
  std::string arch{};

  // Never compile: a kernel that no cache layer holds is kNotCached.  NVRTC is not opened, and
  // entries of any NVRTC version are accepted.
  bool offline = false;
  // Path of libnvrtc.so.  Empty: the loader's search path, then the toolkit's and the PyPI wheel's
  // usual places (docs/design.md lists them).
  std::string nvrtc_path{};
  // Path of nvcc, for texts that ask for it.  Empty: /usr/local/cuda/bin, /usr/local/cuda-*/bin the
  // newest first, /opt/cuda/bin, /usr/bin.
  std::string nvcc_path{};
  // Path of libcuda.so.1.  Empty: the loader's search path.
  std::string driver_path{};

  // The writable cache directory.  Empty: ~/.cache/cubinery, the home directory of the effective
  // user from the password database; none, with a warning, in a privileged process (from_env())
  // whose effective user is the one who started it.  Created with mode 0700 at the first write.
  std::string cache_dir{};
  // Read-only directories and packs (files of `cubinery cache export`), searched after cache_dir,
  // in order.
  std::vector<std::string> cache_layers{};
  // False: nothing is read from or written to disk.
  bool use_disk_cache = true;
  // Entries of cache_dir are evicted, least recently used first, when they pass this size in all.
  std::uint64_t cache_limit_bytes = std::uint64_t{1} << 30;
  // Load cubins, tuning files, templates and libnvrtc from directories and files that belong to
  // another user (not root) or that others can write: anyone, or a group that is not the user's own
  // private one.  All are code: whoever can write them runs code as you.  As trust.everybody.
  bool trust_shared_dirs = false;
  // The same for these users and groups only.  What is made in a directory that a trusted group can
  // write is shared with the group.
  Trust trust{};
  // How long to wait for other processes that compile the same kernels before compiling them here
  // too: in one call, for all kernels of an operator together, and for one process, which is not
  // waited for again until it has let go (docs/cache_format.md, Locks).
  std::chrono::milliseconds lock_wait{60000};

  // Folders of templates (each holds <kernel>/<kernel>.cu, <kernel>/key.h and possibly common/),
  // searched before the templates inside the library.  Others must not be able to write them:
  // trust.
  std::vector<std::string> template_dirs{};

  // Which ways to compute (paths) operators may take: "gdn_prefill=portable" only that one,
  // "gdn_prefill=-portable" never that one.  Choice::path names paths.  For debugging, and to
  // switch off a path that turns out wrong.  Kernels must be pre-warmed with the same paths.
  std::vector<std::string> paths{};

  // A file, to which the context adds what it is asked for, each thing once and whether or not it
  // is in the cache: problems of operators, specifications, texts.  A line for each, which together
  // are a manifest: `cubinery prewarm --manifest` makes the kernels, for any architecture.  Made
  // with mode 0600 when there is something to write; contexts, threads and processes of a machine
  // may share it.  What cannot be written is a warning.  Empty: nothing is recorded.
  std::string record{};

  // Receives what the library has to say; silent when empty.  Called from any thread that calls the
  // library and from those that an operator's create() starts while it runs, possibly from several
  // at once.  Must not call back into the context.
  std::function<void(LogLevel, std::string_view)> log{};

  // Options from the environment, which the library reads nowhere else.
  // kInvalidArgument: a variable has a value that it does not take.
  //
  //   CUBINERY_CACHE_DIR      cache_dir; else $XDG_CACHE_HOME/cubinery; else $HOME/.cache/cubinery,
  //                           of those that are absolute
  //   CUBINERY_CACHE_LAYERS   cache_layers, separated by colons
  //   CUBINERY_CACHE_LIMIT    cache_limit_bytes: a number of bytes, or 64K, 512M, 1G, 2T (powers
  //                           of 1024)
  //   CUBINERY_OFFLINE        offline: 0 or 1
  //   CUBINERY_TRUST          trust: ids between commas, "uid:65534,gid:2000", or "all"
  //   CUBINERY_NVRTC          nvrtc_path
  //   CUBINERY_NVCC           nvcc_path
  //   CUBINERY_DRIVER         driver_path
  //   CUBINERY_TEMPLATE_DIR   template_dirs, separated by colons
  //   CUBINERY_PATHS          paths, separated by colons
  //   CUBINERY_RECORD         record
  //   CUDA_HOME, CUDA_PATH    the toolkit whose libnvrtc and nvcc are used when CUBINERY_NVRTC and
  //                           CUBINERY_NVCC are not set
  //
  // A privileged process (setuid, setgid, file capabilities: AT_SECURE of getauxval(3)) reads none
  // of them: whoever starts it would choose the libraries, templates and cubins that it runs.
  // Every variable counts as unset there, and that is no error.  Such a program sets the fields.
  static Result<Options> from_env();
};

}  // namespace cubinery
