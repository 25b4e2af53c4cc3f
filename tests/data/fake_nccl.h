// A libnccl for machines without GPUs, with one other rank that does as a test says.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cubinery::test {

struct FakeNcclSettings {
  int rank = 0;
  int count = 2;
  int device = 0;
  int result = 0;                        // of what is enqueued; 7: in progress
  std::vector<int> states;               // of the communicator, one each time it is asked; then...
  int last_state = 0;                    // ...this one
  std::optional<std::uint64_t> numbers;  // the other rank's in an all-reduce; absent: the same

  // What happened.
  std::vector<std::string> calls;
};

class FakeNccl {
 public:
  // A library of this name in the process: others find it by that.
  explicit FakeNccl(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
    using Find = FakeNcclSettings* (*)();
    const auto find = reinterpret_cast<Find>(dlsym(library_, "fake_nccl_settings"));
    settings_ = find();
  }
  ~FakeNccl() {
    *settings_ = {};
    dlclose(library_);
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  FakeNcclSettings* operator->() const { return settings_; }
  void* comm() const { return settings_; }  // nobody looks into it

 private:
  void* library_;
  FakeNcclSettings* settings_ = nullptr;
};

}  // namespace cubinery::test
