// Faults in the system calls of the library's own code, one call at a time.  The linker leads every
// call of this program through here (--wrap, tests/CMakeLists.txt); the standard library's own go
// their way.
#pragma once

namespace cubinery::test {

// While it lives, the system calls of this thread are counted from 0, and fsync() does nothing:
// neither a fault nor a kill shows the difference, and it is what takes the time.
class SystemCalls {
 public:
  static constexpr int kNone = -1;
  static constexpr int kKill = -1;
  // ESTALE; what changes a directory is done all the same, and only its answer gets lost.
  static constexpr int kLost = -2;

  // Call number `at` fails with `error` and does nothing; with kKill the process is killed instead,
  // in the middle of a write.
  explicit SystemCalls(int at = kNone, int error = 0);
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  ~SystemCalls();

  int count() const;
  // "rename": what call number `at` was; empty when there were fewer.
  const char* hit() const;
};

}  // namespace cubinery::test
