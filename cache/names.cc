#include "cache/names.h"

#include <algorithm>

#include "cache/paths.h"

namespace cubinery {
namespace {

std::vector<std::string> with_prefix(const std::vector<std::string>& names,
                                     std::string_view prefix) {
  std::vector<std::string> found;
  for (auto name = std::lower_bound(names.begin(), names.end(), prefix);
       name != names.end() && name->starts_with(prefix); ++name) {
    found.push_back(*name);
  }
  return found;
}

}  // namespace

Names::Moment Names::now() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return ++clock_;
}

bool Names::has_entries(Env& env, const std::string& dir) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return has_entries_locked(env, dir);
}

bool Names::has_entries_locked(Env& env, const std::string& dir) {
  if (with_entries_.contains(dir)) return true;
  std::vector<std::string> names;
  if (const std::error_code error = env.list_names(dir, &names)) return !is_absent(error);
  const std::string_view wanted = paths::kEntriesDir;
  if (std::find(names.begin(), names.end(), wanted) == names.end()) return false;
  with_entries_.insert(dir);
  return true;
}

std::error_code Names::find(Env& env, const std::string& dir, std::string_view prefix, Moment since,
                            std::vector<std::string>* names) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto held = lists_.find(dir);
  if (held != lists_.end() && held->second.begun >= since) {
    *names = with_prefix(held->second.names, prefix);
    return {};
  }
  List list{.begun = ++clock_, .names = {}};
  if (has_entries_locked(env, dir)) {
    const std::error_code error = env.list_names(paths::entries_dir(dir), &list.names);
    if (error && !is_absent(error)) return error;
  }
  std::erase_if(list.names, [](const std::string& name) { return !paths::version_in(name); });
  std::sort(list.names.begin(), list.names.end());
  *names = with_prefix(list.names, prefix);
  lists_.insert_or_assign(dir, std::move(list));
  return {};
}

void Names::forget() {
  const std::lock_guard<std::mutex> guard(mutex_);
  lists_.clear();
}

void Names::add(const std::string& dir, std::string_view name) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto held = lists_.find(dir);
  if (held == lists_.end()) return;
  std::vector<std::string>& names = held->second.names;
  const auto place = std::lower_bound(names.begin(), names.end(), name);
  if (place == names.end() || *place != name) names.emplace(place, name);
}

}  // namespace cubinery
