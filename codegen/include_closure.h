// What a text includes, directly or not, from include folders: the files that its compilation may
// read, by content, and the texts that a compiler is given so that it reads nothing else.
//
// All directives count, whatever conditions stand around them: the closure may have files that a
// compilation does not reach, never fewer.  Pure: files come from a function.
//
// How NVRTC (13.0) finds headers that it is given in memory: by the name that the directive has,
// letter by letter, wherever the directive stands.  It looks for nothing beside the includer, does
// not know that "a/../b.h" is "b.h", and opens absolute paths on the disk.  Two names of one text
// are two files to #pragma once.  So each file has one name, and directives that spell it in
// another way are given that one: what "beside the includer" and the order of folders mean is
// decided here, and is part of the digest.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/directives.h"
#include "cubinery/status.h"

namespace cubinery {

// A file of an include folder.
struct IncludeFile {
  std::string text;
  std::string digest;  // digest_of(text)
  std::shared_ptr<const Directives> directives;
};

// The file of an include folder, by its number and a name relative to it ("cute/tensor.hpp",
// without empty, "." and ".." parts); null: it has none.
using IncludeReader =
    std::function<Result<std::shared_ptr<const IncludeFile>>(std::size_t root, const std::string&)>;

struct IncludeQuery {
  std::string_view source;
  std::string path;                  // shown in errors: "scale.cu"
  std::vector<std::string> roots;    // the folders in their order, shown in errors
  std::vector<std::string> options;  // the compiler's: #include NAME may mean a macro of -D
};

// Text in the place of `length` bytes at `begin`.
struct TextEdit {
  std::size_t begin;
  std::size_t length;
  std::string text;
};

// What include_closure() asked its reader for, in its order: where each answer is the same again,
// and so are source, options and the number of folders, the closure is the same too.
struct IncludeQuestion {
  std::size_t root;
  std::string name;
  std::shared_ptr<const IncludeFile> file;  // null: there is none
};

// Persistent: raised when a closure of the same answers becomes another.
inline constexpr int kIncludeRules = 1;

struct IncludeClosure {
  struct File {
    std::string name;  // the compiler's: that of the file in the first folder that has it
    std::shared_ptr<const IncludeFile> file;
    std::vector<TextEdit> edits;  // in the order of the text
  };
  std::vector<File> files;          // in the order of their names
  std::vector<std::string> absent;  // looked for, and in no folder; in their order
  std::vector<TextEdit> source_edits;
  std::vector<IncludeQuestion> questions;
  // Of names, contents and edits, and of what is absent.  No path of a folder and no time is in it.
  std::string digest;

  // What the compiler is given.
  std::string source(std::string_view text) const;
  std::vector<std::pair<std::string, std::string>> headers() const;
};

// More than any library has; a tree that makes itself ends here.
inline constexpr std::size_t kMaxIncludeFiles = 20'000;
inline constexpr std::size_t kMaxIncludeBytes = std::size_t{512} << 20;

// kCompileFailed: a directive could open a file that the closure does not have (an absolute path, a
// name that leaves the folders, #embed, a macro whose values are not all known), a text has
// trigraphs or a zero byte, or there are too many files.  Names the file, the line and the
// directive.  Errors of the reader are handed on.
Result<IncludeClosure> include_closure(const IncludeQuery& query, const IncludeReader& read);

// A name without its empty, "." and ".." parts; empty: it leads out of where it begins, or has
// none.
std::string normal_name(std::string_view name);

}  // namespace cubinery
