// Child processes for the tests of what several processes do to one cache.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace cubinery::test {

// Runs `body` in a child and exits with what it returns.  No Catch assertion in it: the child has
// the parent's test state.
template <class Body>
pid_t start_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

// The exit code, or -1 when a signal ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) != child) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline void kill_child(pid_t child) {
  ::kill(child, SIGKILL);
  wait_for(child);
}

// Lets one process wait for another.
class Pipe {
 public:
  Pipe() { ok_ = ::pipe(ends_.data()) == 0; }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  bool ok() const { return ok_; }
  bool send() const { return ::write(ends_[1], "x", 1) == 1; }
  bool receive() const {
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool ok_ = false;
};

}  // namespace cubinery::test
