#include "runtime/jit/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "cache/file_io.h"

namespace cubinery {
namespace {

constexpr std::size_t kMostOutput = std::size_t{64} << 20;

std::string text_of(int error) { return std::generic_category().message(error); }

// What a child does before it is another program; freed on every path.
class Actions {
 public:
  Actions() { error_ = ::posix_spawn_file_actions_init(&actions_); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&actions_); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;

  void in(const std::string& directory) {
    keep(::posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str()));
  }
  void input_from(const char* path) {
    keep(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, path, O_RDONLY, 0));
  }
  void output_to(int fd) {
    keep(::posix_spawn_file_actions_adddup2(&actions_, fd, STDOUT_FILENO));
    keep(::posix_spawn_file_actions_adddup2(&actions_, fd, STDERR_FILENO));
  }
  int error() const { return error_; }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  void keep(int error) {
    if (error_ == 0) error_ = error;
  }

  posix_spawn_file_actions_t actions_;
  int error_ = 0;
};

// Signals that the host ignores or blocks are not the child's affair.
class Signals {
 public:
  Signals() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Signals() { ::posix_spawnattr_destroy(&attributes_); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> found;
  found.reserve(texts.size() + 1);
  for (const std::string& text : texts) found.push_back(const_cast<char*>(text.c_str()));
  found.push_back(nullptr);
  return found;
}

std::string read_all(int fd) {
  std::string output;
  std::array<char, 1 << 11> part;
  while (true) {
    const ssize_t count = ::read(fd, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return output;
    const auto bytes = static_cast<std::size_t>(count);
    if (output.size() + bytes <= kMostOutput) output.append(part.data(), bytes);
  }
}

std::optional<int> exit_code_of(pid_t child) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended != child || !WIFEXITED(status)) return std::nullopt;
  return WEXITSTATUS(status);
}

}  // namespace

Result<ChildOutcome> run_child(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment,
                               const std::string& directory) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(Code::kIo, fmt::format("{}: no pipe: {}", arguments[0], text_of(errno)));
  }
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  Actions actions;
  actions.in(directory);
  actions.input_from("/dev/null");
  actions.output_to(to.get());
  const Signals signals;
  pid_t child = 0;
  const int error = actions.error() != 0
                        ? actions.error()
                        : ::posix_spawn(&child, arguments[0].c_str(), actions.get(), signals.get(),
                                        pointers(arguments).data(), pointers(environment).data());
  if (error != 0) {
    return Status(Code::kUnsupported, fmt::format("{}: cannot be started in {}: {}", arguments[0],
                                                  directory, text_of(error)));
  }
  to = Descriptor();  // the child has the last writing end: its end is the output's end
  ChildOutcome outcome{.exit_code = {}, .output = read_all(from.get())};
  outcome.exit_code = exit_code_of(child);
  return outcome;
}

}  // namespace cubinery
