// Template files and what they add to an identity.  Pure functions; the files inside the library
// are embedded at build time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cubinery {

// Path relative to the template root, as #include lines write it ("gdn_decode/key.h") -> text.
using TemplateFiles = std::map<std::string, std::string, std::less<>>;

// The files inside the library: every kernel's folder, common/ and the device headers of cubinery/.
const TemplateFiles& embedded_templates();

// What follows from them, worked out when the library is built.
struct EmbeddedDigests {
  std::string_view kernel;
  std::string_view own;      // digest_below() its folder
  std::string_view headers;  // headers_digest()
  std::string_view code;     // code_digest()
};
// nullptr: not a kernel of the library.
const EmbeddedDigests* embedded_digests(std::string_view kernel);

// Whether the compiler may see a file of a template folder: device code and key.h, but not fields.h
// and the references, which only the host compiles.
bool is_device_file(std::string_view file_name);

// Digest of the files below `prefix` ("gdn_decode/"): names, lengths and contents.
std::string digest_below(const TemplateFiles& files, std::string_view prefix);

// Digest of a kernel's own files and of every header that they include, directly or not: changes
// when the kernel may have.
std::string kernel_digest(const TemplateFiles& files, std::string_view kernel);

// The same, whatever comments and blank lines the files have: changes when the kernel's code may
// have.
std::string code_digest(const TemplateFiles& files, std::string_view kernel);
// C++ text without comments, blanks at the ends of lines, and blank lines.  A text with a raw
// string literal is returned as it is.
std::string without_comments(std::string_view text);

// The first preprocessor directive of a text that may open, or ask for, a file that is not one of
// the template's: an absolute path, which compilers open wherever it leads, or a name that is a
// macro's.  nullopt: there is none, so that a template's files are all that its code depends on.
std::optional<std::string> outside_directive(std::string_view text);

// Digest of the headers that any kernel may include: common/ and cubinery/.
std::string headers_digest(const TemplateFiles& files);

}  // namespace cubinery
