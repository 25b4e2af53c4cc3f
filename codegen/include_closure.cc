#include "codegen/include_closure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "codegen/cxx_text.h"
#include "codegen/identity.h"
#include "codegen/include_macros.h"

namespace cubinery {
namespace {

constexpr std::string_view kAccepted =
    "; accepted: a name in quotes or angle brackets, of a file below the include folders";

std::string edited(std::string_view text, const std::vector<TextEdit>& edits) {
  std::string result;
  std::size_t begin = 0;
  for (const TextEdit& edit : edits) {
    result += text.substr(begin, edit.begin - begin);
    result += edit.text;
    begin = edit.begin + edit.length;
  }
  result += text.substr(begin);
  return result;
}

void sort_edits(std::vector<TextEdit>* edits) {
  std::sort(edits->begin(), edits->end(),
            [](const TextEdit& a, const TextEdit& b) { return a.begin < b.begin; });
}

// Follows the directives of a source and of what it reaches.
class IncludeWalk {
 public:
  IncludeWalk(const IncludeQuery& query, const IncludeReader& read) : query_(query), read_(read) {
    macros_.add_options(query.options);
  }

  Result<IncludeClosure> run() {
    const Directives own(query_.source);
    nodes_.push_back({.root = 0,
                      .place = "",
                      .name = query_.path,
                      .file = nullptr,
                      .text = query_.source,
                      .directives = &own,
                      .edits = {}});
    for (std::size_t before = 0; before != nodes_.size();) {
      while (visited_ < nodes_.size()) CUBINERY_RETURN_IF_ERROR(visit(nodes_[visited_++]));
      before = nodes_.size();
      CUBINERY_RETURN_IF_ERROR(follow_macros());
    }
    return finished();
  }

 private:
  struct Node {
    std::size_t root;   // of the folders; the source has none
    std::string place;  // the name relative to it
    std::string name;
    std::shared_ptr<const IncludeFile> file;  // null: the source
    std::string_view text;
    const Directives* directives;
    std::vector<TextEdit> edits;
  };
  // A name that a macro stands for.
  struct Pending {
    const Node* node;
    const Directive* directive;
    std::string text;
  };

  Status refuse(const Node& node, const Directive& directive, std::string_view why) const {
    constexpr std::size_t kLongest = 200;
    const auto line =
        1 + std::count(node.text.begin(),
                       node.text.begin() + static_cast<std::ptrdiff_t>(directive.at), '\n');
    return Status(
        Code::kCompileFailed,
        fmt::format("{}:{}: #{}: {}", shown(node), line,
                    node.directives->body(directive, node.text).substr(0, kLongest), why));
  }

  std::string shown(const Node& node) const {
    return node.file ? fmt::format("{}/{}", query_.roots[node.root], node.place) : query_.path;
  }

  Status visit(Node& node) {
    const Directives& directives = *node.directives;
    const std::string_view oddity = directives.has_trigraphs() ? "trigraphs"
                                    : directives.has_zeros()   ? "a zero byte"
                                    : directives.has_doubtful_splices()
                                        ? "a backslash and blanks at a line's end"
                                        : "";
    if (!oddity.empty()) {
      return Status(Code::kCompileFailed,
                    fmt::format("{}: has {}, with which compilers may read other directives than "
                                "are seen; accepted: C++ text without",
                                shown(node), oddity));
    }
    for (const Directive& directive : node.directives->list()) {
      CUBINERY_RETURN_IF_ERROR(visit(node, directive));
    }
    return {};
  }

  Status visit(Node& node, const Directive& directive) {
    const std::string_view body = node.directives->body(directive, node.text);
    switch (directive.kind) {
      case Directive::Kind::kEmbed:
        return refuse(node, directive, "embeds a file, whose changes would go unseen");
      case Directive::Kind::kInclude:
      case Directive::Kind::kIncludeNext:
        return visit_include(node, directive, body);
      case Directive::Kind::kCondition:
      case Directive::Kind::kDefine:
        return visit_questions(node, directive, body);
    }
    return {};
  }

  Status visit_include(Node& node, const Directive& directive, std::string_view body) {
    const std::size_t word = first_word(body).size();
    const bool is_next = directive.kind == Directive::Kind::kIncludeNext;
    const std::optional<HeaderName> name = header_name(body, word);
    if (!name) {
      if (is_next) return refuse(node, directive, unknown_name());
      pending_.push_back({&node, &directive, std::string(trimmed(body.substr(word)))});
      return {};
    }
    Result<const Node*> found = resolve(node, directive, name->name, name->is_quoted, is_next);
    if (!found) return std::move(found).error();
    if (!is_next) return rename(node, directive, *name, *found);
    // In no later folder: a name that nothing has, where the compiler would find the file itself.
    const std::string target =
        *found != nullptr ? (*found)->name : fmt::format("<absent>/{}", name->name);
    return edit(node, directive, 0, name->begin + name->length,
                fmt::format("include \"{}\"", target));
  }

  Status visit_questions(Node& node, const Directive& directive, std::string_view body) {
    const bool is_definition = directive.kind == Directive::Kind::kDefine;
    const std::vector<FileQuestion> questions = file_questions(body);
    for (const FileQuestion& question : questions) {
      if (question.is_embed) {
        return refuse(node, directive, "asks for a file to embed, whose changes would go unseen");
      }
      if (!question.name) {
        if (is_definition && is_wrapper(body, question.argument)) {
          wrappers_.insert(std::string(macro_of(body)));
        } else {
          pending_.push_back({&node, &directive, std::string(question.argument)});
        }
        continue;
      }
      Result<const Node*> found =
          resolve(node, directive, question.name->name, question.name->is_quoted, question.is_next);
      if (!found) return std::move(found).error();
      if (question.is_next) {
        CUBINERY_RETURN_IF_ERROR(
            edit(node, directive, question.begin, question.end - question.begin,
                 *found != nullptr ? fmt::format("__has_include(\"{}\")", (*found)->name) : "0"));
      } else {
        CUBINERY_RETURN_IF_ERROR(rename(node, directive, *question.name, *found));
      }
    }
    return is_definition ? Status() : visit_arguments(node, directive, body, questions);
  }

  // Names that a condition hands to a macro, as in HAS(<x.h>): it asks for them.
  Status visit_arguments(Node& node, const Directive& directive, std::string_view body,
                         const std::vector<FileQuestion>& questions) {
    if (body.find_first_of("\"<") == body.npos) return {};
    char before = ' ';
    for (std::size_t i = 0; i < body.size(); ++i) {
      const char c = body[i];
      const auto inside = std::find_if(
          questions.begin(), questions.end(),
          [&](const FileQuestion& question) { return i >= question.begin && i < question.end; });
      if (inside != questions.end()) {
        i = inside->end - 1;
      } else if (c == '"' || (c == '<' && (before == '(' || before == ','))) {
        if (const std::optional<HeaderName> name = header_name(body, i)) {
          Result<const Node*> found =
              resolve(node, directive, name->name, name->is_quoted, /*is_next=*/false);
          if (!found) return std::move(found).error();
          CUBINERY_RETURN_IF_ERROR(rename(node, directive, *name, *found));
          i += name->length - 1;
        }
      }
      if (body[i] != ' ' && body[i] != '\t') before = body[i];
    }
    return {};
  }

  // The macro that the body of a #define defines.
  static std::string_view macro_of(std::string_view body) {
    return first_word(without_blanks(body.substr(first_word(body).size())));
  }

  // Whether a definition asks for what it is given: the question has no argument, or one of the
  // macro's own.
  static bool is_wrapper(std::string_view body, std::string_view argument) {
    if (argument.empty()) return true;
    const std::string_view name = macro_of(body);
    const std::string_view behind =
        body.substr(static_cast<std::size_t>(name.data() - body.data()) + name.size());
    if (!behind.starts_with('(') || first_word(argument) != argument) return false;
    std::string_view parameters = behind.substr(1, behind.find(')') - 1);
    while (!parameters.empty()) {
      const std::string_view parameter = parameters.substr(0, parameters.find(','));
      if (trimmed(parameter) == argument) return true;
      parameters.remove_prefix(std::min(parameters.size(), parameter.size() + 1));
    }
    return false;
  }

  // Conditions that hand a macro to a wrapper.
  void find_wrapped() {
    for (; wrapped_ < nodes_.size(); ++wrapped_) {
      const Node& node = nodes_[wrapped_];
      for (const Directive& directive : node.directives->list()) {
        if (directive.kind != Directive::Kind::kCondition) continue;
        const std::string_view body = node.directives->body(directive, node.text);
        for (const std::string& wrapper : wrappers_) find_wrapped(node, directive, body, wrapper);
      }
    }
  }

  void find_wrapped(const Node& node, const Directive& directive, std::string_view body,
                    const std::string& wrapper) {
    for (std::size_t at = 0; (at = body.find(wrapper, at)) != body.npos;) {
      const bool is_name = at == 0 || !is_word(body[at - 1]);
      at += wrapper.size();
      const std::string_view behind = without_blanks(body.substr(at));
      if (!is_name || !behind.starts_with('(')) continue;
      const std::string_view argument = trimmed(behind.substr(1, behind.find(')') - 1));
      if (header_name(argument, 0)) continue;
      pending_.push_back({&node, &directive, std::string(argument)});
    }
  }

  static std::string unknown_name() {
    return fmt::format(
        "names a file by a macro that may stand for any{}, or a macro whose "
        "definitions all are such a name",
        kAccepted);
  }

  // Follows what macros stand for.  A macro may be defined in a file that another one leads to: an
  // error counts when nothing new was found.
  Status follow_macros() {
    for (; defined_ < nodes_.size(); ++defined_) {
      macros_.add(*nodes_[defined_].directives, nodes_[defined_].text);
    }
    // A wrapper that was found late: everything again.
    if (wrappers_.size() != known_wrappers_) wrapped_ = 0;
    known_wrappers_ = wrappers_.size();
    find_wrapped();
    const std::size_t before = nodes_.size();
    Status first_error;
    for (const Pending& pending : pending_) {
      Status error = follow(pending);
      if (first_error.ok()) first_error = std::move(error);
    }
    return nodes_.size() == before ? std::move(first_error) : Status();
  }

  Status follow(const Pending& pending) {
    const Node& node = *pending.node;
    const auto candidates = macros_.expand(pending.text);
    if (!candidates) return refuse(node, *pending.directive, unknown_name());
    for (const IncludeMacros::Candidate& candidate : *candidates) {
      Result<const Node*> found =
          resolve(node, *pending.directive, candidate.name, candidate.is_quoted, /*is_next=*/false);
      if (!found) return std::move(found).error();
      if (*found == nullptr || (*found)->name == candidate.name) continue;
      return refuse(node, *pending.directive,
                    fmt::format("stands for \"{}\", which is {}; accepted: a macro that stands for "
                                "a name relative to the include folders",
                                candidate.name, shown(**found)));
    }
    return {};
  }

  // The file that a name means there; null: there is none.
  Result<const Node*> resolve(const Node& node, const Directive& directive, std::string_view name,
                              bool is_quoted, bool is_next) {
    if (name.starts_with('/') || name.starts_with('<')) {
      return refuse(node, directive,
                    fmt::format("is no name relative to the include folders{}", kAccepted));
    }
    bool leads_inside = false;
    if (is_quoted && node.file && !is_next) {
      const std::string folder = node.place.substr(0, node.place.rfind('/') + 1);
      const std::string beside = normal_name(fmt::format("{}{}", folder, name));
      leads_inside = !beside.empty();
      if (leads_inside) {
        Result<const Node*> found = at(node.root, beside);
        if (!found || *found != nullptr) return found;
      }
    }
    const std::string below = normal_name(name);
    if (below.empty() && !leads_inside) {
      return refuse(node, directive,
                    fmt::format("leads out of the include folders [{}]{}",
                                fmt::join(query_.roots, ", "), kAccepted));
    }
    if (!below.empty()) {
      Result<const Node*> found = below_roots(below, is_next && node.file ? node.root + 1 : 0);
      if (!found || *found != nullptr) return found;
    }
    absent_.emplace(name);
    return nullptr;
  }

  Result<const Node*> below_roots(const std::string& name, std::size_t first) {
    if (first == 0) {
      const auto known = below_.find(name);
      if (known != below_.end()) return known->second;
    }
    const Node* node = nullptr;
    for (std::size_t root = first; root < query_.roots.size() && node == nullptr; ++root) {
      Result<const Node*> found = at(root, name);
      if (!found) return found;
      node = *found;
    }
    if (first == 0) below_.emplace(name, node);
    return node;
  }

  // The file of a folder.
  Result<const Node*> at(std::size_t root, const std::string& place) {
    const auto [known, is_new] = places_.try_emplace(fmt::format("{}/{}", root, place), nullptr);
    if (!is_new) return known->second;
    const Node** const slot = &known->second;  // stays where it is
    Result<std::shared_ptr<const IncludeFile>> file = read_(root, place);
    if (!file) return std::move(file).error();
    questions_.push_back({root, place, *file});
    if (*file == nullptr) return nullptr;
    std::string name = place;
    for (std::size_t before = 0; before < root && name == place; ++before) {
      Result<const Node*> other = at(before, place);
      if (!other) return other;
      // An earlier folder's file has that name.
      if (*other != nullptr) name = fmt::format("<root {}>/{}", root, place);
    }
    bytes_ += (*file)->text.size();
    if (nodes_.size() > kMaxIncludeFiles || bytes_ > kMaxIncludeBytes) {
      return Status(Code::kCompileFailed,
                    fmt::format("{}: includes more than {} files or {} MiB; the last one is {}/{}",
                                query_.path, kMaxIncludeFiles, kMaxIncludeBytes >> 20,
                                query_.roots[root], place));
    }
    nodes_.push_back({.root = root,
                      .place = place,
                      .name = std::move(name),
                      .file = *file,
                      .text = (*file)->text,
                      .directives = (*file)->directives.get(),
                      .edits = {}});
    return *slot = &nodes_.back();
  }

  // Gives a directive the compiler's name of a file.
  Status rename(Node& node, const Directive& directive, const HeaderName& name,
                const Node* target) {
    if (target == nullptr || target->name == name.name) return {};
    return edit(node, directive, name.begin, name.length, fmt::format("\"{}\"", target->name));
  }

  Status edit(Node& node, const Directive& directive, std::size_t begin, std::size_t length,
              std::string text) {
    const auto place = node.directives->place(directive, begin, length);
    if (!place) {
      return refuse(node, directive,
                    "has to be given another name of the file, and has comments or spliced lines; "
                    "accepted: the directive without them, or the name relative to the include "
                    "folders");
    }
    node.edits.push_back({place->first, place->second, std::move(text)});
    return {};
  }

  IncludeClosure finished() {
    IncludeClosure closure;
    for (Node& node : nodes_) {
      sort_edits(&node.edits);
      if (node.file) {
        closure.files.push_back({std::move(node.name), node.file, std::move(node.edits)});
      } else {
        closure.source_edits = std::move(node.edits);
      }
    }
    std::sort(closure.files.begin(), closure.files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    closure.absent.assign(absent_.begin(), absent_.end());
    closure.questions = std::move(questions_);
    std::string text;
    for (const IncludeClosure::File& file : closure.files) {
      text += fmt::format("file {}:{} {}\n", file.name.size(), file.name, file.file->digest);
      for (const TextEdit& edit : file.edits) {
        text +=
            fmt::format("edit {} {} {}:{}\n", edit.begin, edit.length, edit.text.size(), edit.text);
      }
    }
    for (const std::string& name : closure.absent) {
      text += fmt::format("absent {}:{}\n", name.size(), name);
    }
    closure.digest = digest_of(text);
    return closure;
  }

  const IncludeQuery& query_;
  const IncludeReader& read_;
  std::deque<Node> nodes_;  // the source is the first
  std::size_t visited_ = 0;
  std::size_t defined_ = 0;  // nodes whose macros are known
  std::size_t wrapped_ = 0;  // nodes whose conditions were searched for wrappers
  std::unordered_map<std::string, const Node*> places_;
  std::unordered_map<std::string, const Node*> below_;  // what a name means in the folders
  std::set<std::string> absent_;
  std::set<std::string> wrappers_;  // macros that ask for the file they are given
  std::size_t known_wrappers_ = 0;
  IncludeMacros macros_;
  std::vector<Pending> pending_;
  std::vector<IncludeQuestion> questions_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::string normal_name(std::string_view name) {
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('/'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (parts.empty()) return "";
      parts.pop_back();
    } else {
      parts.push_back(part);
    }
  }
  return fmt::format("{}", fmt::join(parts, "/"));
}

std::string IncludeClosure::source(std::string_view text) const {
  return edited(text, source_edits);
}

std::vector<std::pair<std::string, std::string>> IncludeClosure::headers() const {
  std::vector<std::pair<std::string, std::string>> headers;
  headers.reserve(files.size());
  for (const File& file : files) {
    headers.emplace_back(file.name, edited(file.file->text, file.edits));
  }
  return headers;
}

Result<IncludeClosure> include_closure(const IncludeQuery& query, const IncludeReader& read) {
  return IncludeWalk(query, read).run();
}

}  // namespace cubinery
