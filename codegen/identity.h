// What a cubin was made from, as text.  Pure functions.
//
// The text is the identity; the digest only abbreviates it.  One line per field, "label
// length:value\n", the length in bytes: no value can imitate another field, whatever it holds.
//
//   cubinery identity 1
//   kernel 10:gdn_decode
//   key 187:gdn_decode;dtype=bf16;...
//   template 32:<XXH3-128 of the kernel's own files>
//   headers 32:<XXH3-128 of the shared headers>
//   options 61:-std=c++20 ...
//   arch 6:sm_90a
//   nvrtc 7:13.0.88
//
// All lines but the last are the *request*: what was asked for.  Its digest names the entry's file
// together with the compiler's version, so that a process without NVRTC can find what any compiler
// made for it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cubinery {

struct Identity {
  std::string kernel;  // template folder and symbol: [A-Za-z0-9_]+
  std::string key;     // canonical text
  std::string template_digest;
  std::string headers_digest;
  // Those that are asked of any NVRTC, without the key and the architecture, separated by spaces.
  std::string options;
  std::string arch;   // "sm_90a"
  std::string nvrtc;  // "13.0.88"; empty while not known

  bool operator==(const Identity&) const = default;
};

// Persistent: the schema number on the text's first line.
inline constexpr int kIdentitySchema = 1;

std::string to_text(const Identity& identity);
// nullopt: not a text that to_text() of this schema prints.
std::optional<Identity> parse_identity(std::string_view text);

// XXH3-128 of the text without its nvrtc line, 32 hexadecimal digits.
std::string request_digest(const Identity& identity);

// XXH3-128 of any bytes, 32 hexadecimal digits.
std::string digest_of(std::string_view bytes);
// The same of what `next` returns, part behind part; an empty one is the end.
std::string digest_of_parts(const std::function<std::string_view()>& next);

// Before the digest of the key's value, at the end of an identity's options.
inline constexpr std::string_view kKeyValueOption = " -DCUBINERY_KEY=";

// For each field that differs: "label: theirs -> ours"; keys are compared field by field
// ("key.dtype: ...").
std::vector<std::string> differences(const Identity& theirs, const Identity& ours);

// What differences() lists, of an entry or (`plural`) several, for people: "differs in state_dtype:
// f32 -> bf16, arch: sm_80 -> sm_90a".  Digests and options, of which nobody reads anything, are
// "was made by another version of cubinery or another template".
std::string difference_text(const std::vector<std::string>& changes, bool plural = false);
// The same of entries that are compared with a text's: "differs in what it includes".
std::string source_difference_text(const std::vector<std::string>& changes, bool plural = false);

}  // namespace cubinery
