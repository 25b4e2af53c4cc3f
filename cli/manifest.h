// Problems, and kernels of somebody's own, from a manifest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/left_out.h"
#include "cli/model_config.h"
#include "cubinery/status.h"

namespace cubinery {

// A JSON array of objects, or an object on each line, as Options::record writes them; of lines,
// those that say the same are one.  An object has
//
//   "op": one of operator_names(), and the fields of the problem's to_json(), those that are
//         missing at their default; or
//   "spec": for a kernel that is not the library's, what to_json() prints of its KernelSpec; or
//   "source": what to_json() prints of a KernelSource, or the same with "file" in the place of its
//         "source": the file that has the text, and its include folders, may be relative to the
//         manifest's folder;
//
// and optionally "arch".  A line that ends before its object does, as one whose writer was killed,
// goes to *left_out.
// kInvalidArgument: anything else, or a file that cannot be read; names the entry or the line, from
// 1.
Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text,
                                           LeftOuts* left_out = nullptr);

// A kernel of a text, whose include folders are relative to `folder`; "file" names its text where
// it has none.  Errors as above, which begin with "source: ".
struct SourceFile {
  KernelSource source;
  std::string file;
};
Result<AskedKernel> read_source_file(SourceFile asked, const std::string& folder);

}  // namespace cubinery
