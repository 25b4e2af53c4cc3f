// A libcuda for machines without a GPU: it has one device, or whatever a test makes of it, and
// writes down what it is asked to launch.
//
// tests/data/fake_driver.cc and fake_driver_stubs.cc make the library; a test opens the same file
// and changes its settings:
//
//   const FakeDriver fake(CUBINERY_FAKE_DRIVER);   // reset when it goes
//   fake->major = 8;
//   Options options{.driver_path = CUBINERY_FAKE_DRIVER};
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cubinery::test {

struct FakeLaunch {
  std::string kernel;
  CUlaunchConfig config{};  // without its attributes
  std::vector<CUlaunchAttribute> attributes;
  std::vector<char> arguments;  // the bytes of the kernel's parameters, one behind the other
};

struct FakeSettings {
  int version = 13000;
  CUresult init = CUDA_SUCCESS;
  int devices = 1;
  int current_device = -1;  // of the context that a caller has made current; -1: none
  int major = 9;
  int minor = 0;
  int sm_count = 132;
  int l2_bytes = 50 << 20;
  int clock_khz = 1980000;
  int shared_bytes_per_sm = 228 << 10;
  CUresult get_attribute = CUDA_SUCCESS;  // of the two above
  std::string name = "Fake GPU";
  CUresult retain_context = CUDA_SUCCESS;
  CUresult load_library = CUDA_SUCCESS;
  int refused_images = 0;  // so many loads fail first
  CUresult get_kernel = CUDA_SUCCESS;
  // Of the parameter of each kernel, by name; of those that are not here as their cubin says.
  std::map<std::string, std::size_t> param_bytes;
  int threads_per_block = 1024;
  int own_shared_bytes = 0;                // of each kernel
  int shared_bytes_per_block = 227 << 10;  // when asked for
  CUresult set_cluster = CUDA_SUCCESS;     // of larger clusters than every GPU takes
  CUresult launch = CUDA_SUCCESS;
  CUresult encode = CUDA_SUCCESS;  // of tensor maps
  bool capturing = false;          // a stream, in the global mode
  int refused_unloads = 0;         // so many fail because of it, whatever the thread's mode
  bool stream_runs = true;         // what is on a stream ends

  // What happened.
  int contexts = 0;                                       // retained and not released
  int libraries = 0;                                      // loaded and not unloaded
  std::set<std::thread::id> loaders;                      // threads that loaded them
  int pushed = 0;                                         // contexts pushed and not popped
  int pushes = 0;                                         // contexts pushed
  std::map<std::string, std::set<int>> shared_bytes;      // what kernels of this name asked for
  std::set<std::string> large_clusters;                   // kernels that asked for them
  int absent_parameters = 0;                              // asked for, of whatever kernel
  bool invalidated = false;                               // the capture, by a call that it forbids
  std::map<CUdeviceptr, std::unique_ptr<char[]>> memory;  // allocated and not freed
  std::vector<FakeLaunch> launches;
  std::vector<std::vector<cuuint64_t>> map_strides;  // of the maps that were encoded
};

class FakeDriver {
 public:
  explicit FakeDriver(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    using Find = FakeSettings* (*)();
    if (library_ == nullptr) return;
    const auto find = reinterpret_cast<Find>(dlsym(library_, "fake_driver_settings"));
    if (find != nullptr) settings_ = find();
  }
  ~FakeDriver() {
    if (settings_ != nullptr) *settings_ = FakeSettings{};
    if (library_ != nullptr) dlclose(library_);
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  template <class Function>
  Function symbol(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  // Requires: the library is there.
  FakeSettings* operator->() const { return settings_; }

 private:
  void* library_;
  FakeSettings* settings_ = nullptr;
};

}  // namespace cubinery::test
