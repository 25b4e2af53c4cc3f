#include "codegen/identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cubinery {
namespace {

struct Label {
  const char* name;
  std::string Identity::*member;
};

// Persistent: labels and their order.  The last one is not part of the request.
constexpr std::array<Label, 7> kLabels{{{"kernel", &Identity::kernel},
                                        {"key", &Identity::key},
                                        {"template", &Identity::template_digest},
                                        {"headers", &Identity::headers_digest},
                                        {"options", &Identity::options},
                                        {"arch", &Identity::arch},
                                        {"nvrtc", &Identity::nvrtc}}};

std::string first_line() { return fmt::format("cubinery identity {}\n", kIdentitySchema); }

std::string print(const Identity& identity, std::size_t labels) {
  std::string text = first_line();
  for (std::size_t i = 0; i < labels; ++i) {
    const std::string& value = identity.*kLabels[i].member;
    text.append(kLabels[i].name).append(" ").append(std::to_string(value.size()));
    text.append(":").append(value).append("\n");
  }
  return text;
}

// Removes `prefix` from the front of `text`; false when it does not start with it.
bool take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Reads "<length>:<value>\n".
std::optional<std::string> take_value(std::string_view* text) {
  std::size_t length = 0;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), length);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<std::size_t>(stop - text->data()));
  if (!take(text, ":") || text->size() <= length) return std::nullopt;
  std::string value(text->substr(0, length));
  // No kernel, key or option has control characters: text of somebody who wants to steer a
  // terminal.
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(value.begin(), value.end(), is_control)) return std::nullopt;
  text->remove_prefix(length);
  if (!take(text, "\n")) return std::nullopt;
  return value;
}

// "gdn_decode;dtype=bf16;..." as (name, value) pairs; the kernel's name has an empty value.
std::vector<std::pair<std::string_view, std::string_view>> key_fields(std::string_view key) {
  std::vector<std::pair<std::string_view, std::string_view>> fields;
  while (!key.empty()) {
    const std::string_view field = key.substr(0, key.find(';'));
    key.remove_prefix(std::min(key.size(), field.size() + 1));
    const std::size_t equals = field.find('=');
    fields.emplace_back(field.substr(0, equals),
                        equals == field.npos ? "" : field.substr(equals + 1));
  }
  return fields;
}

// Before the name of a key's field in a difference.
constexpr std::string_view kOfKey = "key.";

std::string change(std::string_view label, std::string_view theirs, std::string_view ours) {
  return fmt::format("{}: {} -> {}", label, theirs, ours);
}

void append_key_differences(std::string_view theirs, std::string_view ours,
                            std::vector<std::string>* changes) {
  const std::size_t changes_before = changes->size();
  const auto their_fields = key_fields(theirs);
  const auto our_fields = key_fields(ours);
  const auto value_in = [](const auto& fields, std::string_view name) -> std::string_view {
    for (const auto& [field, value] : fields) {
      if (field == name) return value;
    }
    return "(none)";
  };
  for (const auto& [name, value] : our_fields) {
    const std::string_view other = value_in(their_fields, name);
    if (other != value) changes->push_back(change(fmt::format("{}{}", kOfKey, name), other, value));
  }
  for (const auto& [name, value] : their_fields) {
    if (value_in(our_fields, name) == "(none)") {
      changes->push_back(change(fmt::format("{}{}", kOfKey, name), value, "(none)"));
    }
  }
  // Same fields, written differently.
  if (changes->size() == changes_before) changes->push_back(change("key", theirs, ours));
}

// Options without the digest of the key's value: another key has another one.
std::string_view without_key_value(std::string_view options) {
  return options.substr(0, options.find(kKeyValueOption));
}

std::string text_of(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string to_text(const Identity& identity) { return print(identity, kLabels.size()); }

std::optional<Identity> parse_identity(std::string_view text) {
  const std::string_view whole = text;
  if (!take(&text, first_line())) return std::nullopt;
  Identity identity;
  for (const Label& label : kLabels) {
    if (!take(&text, label.name) || !take(&text, " ")) return std::nullopt;
    std::optional<std::string> value = take_value(&text);
    if (!value) return std::nullopt;
    identity.*label.member = std::move(*value);
  }
  // One spelling per identity: "7:" may not be written "07:".
  if (!text.empty() || to_text(identity) != whole) return std::nullopt;
  return identity;
}

std::string digest_of(std::string_view bytes) {
  return text_of(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string digest_of_parts(const std::function<std::string_view()>& next) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (std::string_view part = next(); !part.empty(); part = next()) {
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  return text_of(XXH3_128bits_digest(&state));
}

std::string request_digest(const Identity& identity) {
  return digest_of(print(identity, kLabels.size() - 1));
}

std::vector<std::string> differences(const Identity& theirs, const Identity& ours) {
  std::vector<std::string> changes;
  for (const Label& label : kLabels) {
    const std::string& their_value = theirs.*label.member;
    const std::string& our_value = ours.*label.member;
    if (their_value == our_value) continue;
    if (label.member == &Identity::options && theirs.key != ours.key &&
        without_key_value(their_value) == without_key_value(our_value)) {
      continue;
    }
    if (label.member == &Identity::key) {
      append_key_differences(their_value, our_value, &changes);
    } else {
      changes.push_back(change(label.name, their_value, our_value));
    }
  }
  return changes;
}

std::string difference_text(const std::vector<std::string>& changes, bool plural) {
  constexpr std::string_view kVersion[] = {"template: ", "headers: ", "options: "};
  std::vector<std::string_view> named;
  for (const std::string_view change : changes) {
    const auto is_label = [&](std::string_view label) { return change.starts_with(label); };
    if (std::any_of(std::begin(kVersion), std::end(kVersion), is_label)) continue;
    named.push_back(change.substr(change.starts_with(kOfKey) ? kOfKey.size() : 0));
  }
  std::string text;
  if (!named.empty()) {
    text = fmt::format("{} in {}", plural ? "differ" : "differs", fmt::join(named, ", "));
  }
  if (named.size() == changes.size()) return text;
  return fmt::format("{}{}{} made by another version of cubinery or another template", text,
                     text.empty() ? "" : " and ", plural ? "were" : "was");
}

std::string source_difference_text(const std::vector<std::string>& changes, bool plural) {
  std::vector<std::string_view> named;
  for (std::string_view change : changes) {
    if (change.starts_with(kOfKey)) change.remove_prefix(kOfKey.size());
    const bool is_digest = change.starts_with("template: ") || change.starts_with("headers: ");
    named.push_back(!is_digest ? change : change[0] == 't' ? "its text" : "what it includes");
  }
  return fmt::format("{} in {}", plural ? "differ" : "differs", fmt::join(named, ", "));
}

}  // namespace cubinery
