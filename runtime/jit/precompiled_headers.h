// Headers that an NVRTC has precompiled, for further sources that begin with the same ones.
//
// What NVRTC 12.8 and newer can do, and what they do not do:
// - A precompiled header is an image of the compiler's memory at the source's first token that is
//   no directive.  It lives in a heap, one for the process, of which nvrtcSetPCHHeapSize() says the
//   size: CuTe needs 291 MB.  It is also a file, of the same size, that only this process can use.
// - Of headers that are given in memory NVRTC does not see that their texts changed: with `-pch` it
//   takes what it made from others.  So here a precompiled header has what it was made from, and is
//   taken where all of that is the same.
// - It deletes a file of the name before it writes one, so a name in a folder of ours is needed.
//   The file is opened and its name removed as soon as it is there: nothing is left behind.
// - It may be taken by a longer sequence of directives than it was made with, and by a source of
//   another name.  Cubins are the same, byte for byte.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/file_io.h"

namespace cubinery {

struct CompileInput;

class PrecompiledHeaders {
 public:
  // Of the heap, in bytes: virtual memory of the process until it ends, real where it is used.
  static constexpr std::size_t kHeapBytes = std::size_t{400} << 20;
  // Each has a file of up to the heap's size.  The oldest one goes first.
  static constexpr std::size_t kMaxKept = 4;

  // One that was made, or that could not be.
  struct Made {
    std::string options;
    std::string beginning;  // of the source: its directives without comments
    std::unordered_map<std::string, std::string> headers;  // name -> digest of its text
    std::vector<std::string> absent;
    Descriptor file;  // not ok(): it could not be made

    std::string path() const;
  };

  // The directives before a source's first token, without comments; empty: none of them includes
  // anything.
  static std::string beginning_of(const std::string& source);

  // What was made for this input; null: nothing yet.
  std::shared_ptr<const Made> find(const CompileInput& input, const std::string& beginning) const;
  void keep(const CompileInput& input, const std::string& beginning, Descriptor file);

  // Holds back others that would make the same.
  std::mutex& making() { return making_; }

 private:
  mutable std::mutex mutex_;
  std::mutex making_;
  std::vector<std::shared_ptr<const Made>> made_;
};

}  // namespace cubinery
