#include "cache/entry_file.h"

#include "cache/paths.h"

namespace cubinery {
namespace {

// Most identities have less than 1 KiB; a key of more than 1 MiB is no key.
constexpr std::size_t kUsualFront = 4096;
constexpr std::size_t kLongestFront = std::size_t{1} << 20;

}  // namespace

std::string trouble_with(const EntryFile& file, const AcceptEntry& accept) {
  if (!file.entry || !accept) return file.trouble;
  return accept(*file.entry).value_or("");
}

EntryFile check_entry(std::string_view bytes, std::string_view name) {
  EntryFile file;
  Entry entry;
  file.problem = decode_entry(bytes, &entry);
  if (file.problem == EntryProblem::kNone && name != paths::entry_name(entry.identity)) {
    file.problem = EntryProblem::kIdentity;
  }
  if (file.problem == EntryProblem::kNone) {
    file.entry = std::move(entry);
  } else {
    file.trouble = to_string(file.problem);
  }
  return file;
}

EntryFile read_entry_file(Env& env, const std::string& path, const Trust& trust) {
  EntryFile file;
  std::string bytes;
  if (const std::error_code error = env.read(path, &bytes, &file.info)) {
    if (!is_absent(error)) file.trouble = read_error(path, error).message();
    return file;
  }
  // The owner of the open file, not of its path: a symbolic link is fine when what it leads to is.
  const Status owner = check_owner(env, path, file.info, trust);
  if (!owner.ok()) {
    file.trouble = owner.message();
    return file;
  }
  const FileInfo info = file.info;
  file = check_entry(bytes, paths::file_name(path));
  file.info = info;
  return file;
}

std::error_code read_identity(const OpenFile& file, std::uint64_t offset, std::string_view name,
                              std::optional<Identity>* identity) {
  std::string front;
  identity->reset();
  if (const std::error_code error = file.read_at(offset, kUsualFront, &front)) return error;
  const std::size_t end = identity_end(front);
  if (end > kLongestFront) return {};
  if (end > kUsualFront) {
    if (const std::error_code error = file.read_at(offset, end, &front)) return error;
  }
  *identity = decode_identity(front);
  if (*identity && paths::entry_name(**identity) != name) identity->reset();
  return {};
}

}  // namespace cubinery
