#include "cache/entry_file.h"

#include "cache/paths.h"
#include "cache/trust.h"

namespace cubinery {
namespace {

bool has_name(const std::string& path, const std::string& name) {
  return path.substr(path.find_last_of('/') + 1) == name;
}

}  // namespace

EntryFile read_entry_file(Env& env, const std::string& path, bool trust) {
  EntryFile file;
  std::string bytes;
  if (const std::error_code error = env.read(path, &bytes, &file.info)) {
    if (!is_absent(error)) file.trouble = io_error("read", path, error).message();
    return file;
  }
  // The owner of the open file, not of its path: a symbolic link is fine when what it leads to is.
  const Status owner = trust ? Status() : check_owner(env, path, file.info);
  if (!owner.ok()) {
    file.trouble = owner.message();
    return file;
  }
  Entry entry;
  file.problem = decode_entry(bytes, &entry);
  if (file.problem == EntryProblem::kNone && !has_name(path, paths::entry_name(entry.identity))) {
    file.problem = EntryProblem::kIdentity;
  }
  if (file.problem == EntryProblem::kNone) {
    file.entry = std::move(entry);
  } else {
    file.trouble = to_string(file.problem);
  }
  return file;
}

}  // namespace cubinery
