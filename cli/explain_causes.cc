#include "cli/explain_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cli/print.h"
#include "codegen/identity.h"

namespace cubinery {
namespace {

using Changes = std::vector<std::string>;

bool contains(const Changes& changes, const std::string& change) {
  return std::find(changes.begin(), changes.end(), change) != changes.end();
}

std::string_view label_of(std::string_view change) { return change.substr(0, change.find(": ")); }

// What tells causes apart: digests differ from kernel to kernel, and are one change of version.
Changes comparable(const Changes& differences) {
  Changes changes;
  for (const std::string& change : differences) {
    const std::string_view label = label_of(change);
    const bool is_version = label == "template" || label == "headers" || label == "options";
    const std::string text = is_version ? "template: " : change;
    if (!contains(changes, text)) changes.push_back(text);
  }
  return changes;
}

// Whether the difference is in a field of a key that no problem has.
bool is_tuned(std::string_view change, const std::vector<std::string>& fields) {
  constexpr std::string_view kOfKey = "key.";
  const std::string_view label = label_of(change);
  if (!label.starts_with(kOfKey)) return false;
  const std::string_view name = label.substr(kOfKey.size());
  return std::find(fields.begin(), fields.end(), name) == fields.end();
}

// Kernels that are given as text, by all that differs.
class TextGrouping {
 public:
  void add(std::size_t place, const Changes& differences) {
    const std::string text = "nearest " + source_difference_text(differences, /*plural=*/true);
    const auto same = std::find_if(groups_.begin(), groups_.end(),
                                   [&](const MissCause& group) { return group.text == text; });
    (same != groups_.end() ? *same : groups_.emplace_back(MissCause{text, {}}))
        .missing.push_back(place);
  }

  std::vector<MissCause> groups() && { return std::move(groups_); }

 private:
  std::vector<MissCause> groups_;
};

// The kernels that have something to compare, with what differs; grouped by what most of them
// share.
class Grouping {
 public:
  void add(std::size_t place, Changes changes) { left_.emplace_back(place, std::move(changes)); }

  std::vector<MissCause> groups() {
    std::vector<MissCause> groups;
    while (!left_.empty()) groups.push_back(next());
    return groups;
  }

 private:
  // The change that most kernels have; of several the one that is named first.
  std::string commonest() const {
    std::map<std::string, std::size_t> counts;
    for (const auto& [place, changes] : left_) {
      for (const std::string& change : changes) ++counts[change];
    }
    std::string best;
    for (const auto& [place, changes] : left_) {
      for (const std::string& change : changes) {
        if (best.empty() || counts[change] > counts[best]) best = change;
      }
    }
    return best;
  }

  MissCause next() {
    const std::string shared = commonest();
    MissCause group;
    Changes all;
    for (const auto& [place, changes] : left_) {
      if (!contains(changes, shared)) continue;
      if (group.missing.empty()) all = changes;
      std::erase_if(all, [&, &theirs = changes](const std::string& change) {
        return !contains(theirs, change);
      });
      group.missing.push_back(place);
    }
    std::erase_if(left_, [&](const auto& one) { return contains(one.second, shared); });
    group.text = fmt::format("nearest {}", difference_text(all, /*plural=*/true));
    return group;
  }

  std::vector<std::pair<std::size_t, Changes>> left_;
};

}  // namespace

std::vector<MissCause> causes_of(const std::vector<MissingKernel>& missing,
                                 const std::vector<std::string>& fields) {
  MissCause unknown, unusable, tuned;
  std::set<std::string> kernels, tuned_fields;
  Grouping others;
  TextGrouping texts;
  for (std::size_t place = 0; place < missing.size(); ++place) {
    const Explanation& found = missing[place].found;
    Changes changes = comparable(found.differences);
    const bool is_compared = !changes.empty();
    std::erase_if(changes, [&](const std::string& change) { return is_tuned(change, fields); });
    if (found.nearest_path.empty()) {
      kernels.insert(missing[place].kernel);
      unknown.missing.push_back(place);
    } else if (!is_compared) {
      unusable.missing.push_back(place);
    } else if (missing[place].is_text) {
      texts.add(place, found.differences);
    } else if (!changes.empty()) {
      others.add(place, std::move(changes));
    } else {
      for (const std::string& change : found.differences) {
        tuned_fields.emplace(label_of(change).substr(std::string_view("key.").size()));
      }
      tuned.missing.push_back(place);
    }
  }
  unknown.text =
      fmt::format("the cache has no entry of {}", join({kernels.begin(), kernels.end()}));
  unusable.text = "nearest cannot be used, see cubinery cache verify";
  tuned.text = fmt::format("nearest differ in tuned fields alone: {}",
                           join({tuned_fields.begin(), tuned_fields.end()}));
  std::vector<MissCause> causes = others.groups();
  for (MissCause& cause : std::move(texts).groups()) causes.push_back(std::move(cause));
  for (MissCause* cause : {&tuned, &unusable, &unknown}) {
    if (!cause->missing.empty()) causes.push_back(std::move(*cause));
  }
  std::sort(causes.begin(), causes.end(), [](const MissCause& a, const MissCause& b) {
    return a.missing.front() < b.missing.front();
  });
  return causes;
}

}  // namespace cubinery
