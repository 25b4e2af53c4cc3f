// cubinery cache: what is in the cache directories, and whether it is sound.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>

#include "cache/cubin_note.h"
#include "cache/paths.h"
#include "cli/commands.h"
#include "cli/entry_check.h"
#include "cli/library_options.h"
#include "cli/print.h"
#include "codegen/nearest.h"
#include "codegen/read_json.h"
#include "codegen/source_name.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

struct Cache {
  LibraryOptions library;
  std::string json;     // all but show
  std::string name;     // show
  bool remove = false;  // verify
  std::string limit;    // gc
  // export, import
  std::string pack;
  std::vector<std::string> archs;
  std::vector<std::string> kernels;

  int ls(const Store& store) const;
  int show(const Store& store) const;
  int verify(const Store& store) const;
  int gc(Store& store) const;
  int export_pack(Store& store) const;
  int import_pack(Store& store) const;
  // Prints the text, or with --json the document; `code`, or that of a failure to write.
  int finish(const std::string& text, const Json& document, int code) const;
};

int Cache::finish(const std::string& text, const Json& document, int code) const {
  if (json != "-") print(text);
  if (json.empty()) return code;
  const int written = exit_code_of(write_json(json, document));
  return code == kExitOk ? written : code;
}

struct Totals {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bad = 0;

  void add(const ListedEntry& listed) {
    ++entries;
    bytes += listed.bytes;
    if (!listed.problem.empty()) ++bad;
  }
  std::string text(const StoreOptions& options) const {
    std::string text = fmt::format("{} entries, {} of at most {} in {}", entries, bytes_text(bytes),
                                   bytes_text(options.limit_bytes), options.dir);
    if (!options.layers.empty())
      text += fmt::format(" (sizes include the layers {})", join(options.layers));
    if (bad > 0) text += fmt::format("; {} cannot be used, see cubinery cache verify", bad);
    return text + "\n";
  }
};

Json json_of(const ListedEntry& listed) {
  Json object = {
      {"path", listed.path}, {"bytes", listed.bytes}, {"last_used_unix", listed.last_used_unix}};
  if (!listed.problem.empty()) object["problem"] = listed.problem;
  if (listed.entry) {
    const Identity& identity = listed.entry->identity;
    object["kernel"] = identity.kernel;
    object["canonical"] = identity.key;
    object["arch"] = identity.arch;
    object["nvrtc"] = identity.nvrtc;
    object["digest"] = request_digest(identity);
  }
  return object;
}

// Names the directories and packs that a command sees nothing of; `code`, or kExitFailed.
int with_unlisted(const Store& store, int code) {
  const std::vector<UnlistedLayer> unlisted = store.unlisted();
  for (const UnlistedLayer& layer : unlisted) print_error(layer.why);
  return unlisted.empty() ? code : kExitFailed;
}

std::vector<std::string> row_of(const ListedEntry& listed, std::int64_t now) {
  const std::string size = bytes_text(listed.bytes);
  const std::string age = age_text(listed.last_used_unix, now);
  if (!listed.entry) return {fmt::format("({})", listed.problem), "-", "-", size, age, listed.path};
  const Identity& identity = listed.entry->identity;
  const std::string kernel = is_source_key(identity.key)
                                 ? fmt::format("source {}", name_in_source_key(identity.key))
                                 : identity.kernel;
  return {kernel, identity.arch, identity.nvrtc, size, age, listed.path};
}

int Cache::ls(const Store& store) const {
  Totals totals;
  Json document = Json::array();
  Table table({"kernel", "arch", "nvrtc", "size", "last used", "path"});
  const std::int64_t now = std::time(nullptr);
  store.for_each([&](const ListedEntry& listed) {
    totals.add(listed);
    if (!json.empty()) document.push_back(json_of(listed));
    if (json != "-") table.add(row_of(listed, now));
  });
  if (!json.empty()) {
    const Status written = write_json(json, document);
    if (!written.ok()) return exit_code_of(written);
    if (json == "-") return with_unlisted(store, kExitOk);
  }
  if (totals.entries > 0) print(table.text());
  print(totals.text(store.options()));
  return with_unlisted(store, kExitOk);
}

// Whether `name` is the entry's path, its file name, or the start of its digest.
bool is_named(const ListedEntry& listed, const std::string& name) {
  const std::filesystem::path path(listed.path);
  std::error_code ignored;
  // In a pack the path is none to the system.
  if (name == listed.path || name == path.filename()) return true;
  if (std::filesystem::equivalent(path, name, ignored)) return true;
  return listed.entry && request_digest(listed.entry->identity).starts_with(name);
}

std::string show_text(const ListedEntry& listed) {
  std::string text = listed.path + "\n";
  if (!listed.entry) return text + fmt::format("  cannot be used: {}\n", listed.problem);
  const Entry& entry = *listed.entry;
  text += fmt::format("  digest     {}\n", request_digest(entry.identity));
  text += "  identity\n" + indented(to_text(entry.identity), "    ");
  const Result<Json> metadata = read_json("", entry.metadata);
  text += "  metadata\n" + indented(metadata ? metadata->dump(2) : entry.metadata, "    ");
  const std::optional<CubinNote> note = read_cubin_note(entry.cubin);
  text += fmt::format("  cubin      {}, {}\n", bytes_text(entry.cubin.size()),
                      note ? fmt::format("{} by compiler {}", note->arch, note->compiler)
                           : "without a compiler note");
  const std::optional<EntryTrouble> trouble = trouble_of(listed);
  return text + fmt::format("  check      {}\n", trouble ? trouble->text : "good");
}

int Cache::show(const Store& store) const {
  bool found = false;
  store.for_each([&](const ListedEntry& listed) {
    if (!is_named(listed, name)) return;
    found = true;
    print(show_text(listed));
  });
  if (found) return kExitOk;
  with_unlisted(store, kExitOk);
  return usage_error(Status(
      Code::kInvalidArgument,
      fmt::format(
          "{}: no such entry in {}; accepted: a path, a file name or the start of a digest, as "
          "cubinery cache ls --json - lists them",
          name, store.options().dir)));
}

// Removes a damaged entry of the writable directory; empty: it is gone, else why it is not.
std::string why_kept(const ListedEntry& listed, const EntryTrouble& trouble,
                     const std::string& dir) {
  if (!trouble.damaged) return "kept: not damaged";
  if (!listed.path.starts_with(paths::entries_dir(dir) + "/")) return "kept: in a read-only layer";
  std::error_code error;
  std::filesystem::remove(listed.path, error);
  return error ? fmt::format("cannot be removed: {}", error.message()) : "";
}

int Cache::verify(const Store& store) const {
  std::size_t count = 0;
  Json bad = Json::array();
  store.for_each([&](const ListedEntry& listed) {
    ++count;
    const std::optional<EntryTrouble> trouble = trouble_of(listed);
    if (!trouble) return;
    const std::string kept = remove ? why_kept(listed, *trouble, store.options().dir) : "";
    bad.push_back({{"path", listed.path},
                   {"problem", trouble->text},
                   {"damaged", trouble->damaged},
                   {"removed", remove && kept.empty()}});
    if (json == "-") return;
    const std::string fate = remove ? fmt::format(" ({})", kept.empty() ? "removed" : kept) : "";
    print(fmt::format("bad: {}: {}{}\n", listed.path, trouble->text, fate));
  });
  Json unlisted = Json::array();
  for (const UnlistedLayer& layer : store.unlisted()) unlisted.push_back(layer.why);
  const int code = with_unlisted(store, bad.empty() ? kExitOk : kExitFailed);
  return finish(fmt::format("{} entries checked, {} bad\n", count, bad.size()),
                {{"checked", count}, {"bad", bad.size()}, {"entries", bad}, {"unlisted", unlisted}},
                code);
}

int Cache::gc(Store& store) const {
  std::optional<std::uint64_t> bytes;
  if (!limit.empty()) {
    bytes = parse_bytes(limit);
    if (!bytes) {
      return usage_error(Status(Code::kInvalidArgument,
                                fmt::format("--limit {}; accepted: {}", limit, kBytesAccepted)));
    }
  }
  const Result<GcResult> result = store.gc(bytes);
  if (!result) return exit_code_of(result.error());
  return finish(fmt::format("{} entries and {} temporary files removed; {} before, {} now\n",
                            result->entries_removed, result->temporaries_removed,
                            bytes_text(result->bytes_before), bytes_text(result->bytes_after)),
                {{"entries_removed", result->entries_removed},
                 {"temporaries_removed", result->temporaries_removed},
                 {"bytes_before", result->bytes_before},
                 {"bytes_after", result->bytes_after}},
                kExitOk);
}

bool is_among(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// OK when the cache has entries with each of the values of an option.
Status check_filter(const Store& store, std::string_view option,
                    const std::vector<std::string>& values, std::string Identity::*field) {
  if (values.empty()) return Status();
  std::vector<std::string> present;
  for (const KnownEntry& known : store.known("")) {
    const std::string& value = known.identity.*field;
    if (!is_among(present, value)) present.push_back(value);
  }
  std::sort(present.begin(), present.end());
  for (const std::string& value : values) {
    if (is_among(present, value)) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("{} {}: no such entry in {}; accepted: {}{}", option, value,
                              store.options().dir,
                              present.empty() ? "nothing, the cache is empty" : join(present),
                              did_you_mean(value, present)));
  }
  return Status();
}

int Cache::export_pack(Store& store) const {
  for (const Status& status : {check_filter(store, "--arch", archs, &Identity::arch),
                               check_filter(store, "--kernel", kernels, &Identity::kernel)}) {
    if (!status.ok()) return usage_error(status);
  }
  const auto wanted = [&](const Identity& identity) {
    return (archs.empty() || is_among(archs, identity.arch)) &&
           (kernels.empty() || is_among(kernels, identity.kernel));
  };
  const Result<ExportResult> result = store.export_pack(pack, wanted, cubin_mismatch);
  if (!result) return exit_code_of(result.error());
  if (result->unusable > 0) {
    print_error(
        fmt::format("{} entries cannot be used and are not in the pack, see cubinery cache "
                    "verify",
                    result->unusable));
  }
  return finish(
      fmt::format("{} entries, {} in {}\n", result->entries, bytes_text(result->bytes), pack),
      {{"pack", pack},
       {"entries", result->entries},
       {"bytes", result->bytes},
       {"unusable", result->unusable}},
      result->unusable == 0 ? kExitOk : kExitFailed);
}

int Cache::import_pack(Store& store) const {
  const Result<ImportResult> result = store.import_pack(pack, cubin_mismatch);
  if (!result) return exit_code_of(result.error());
  if (result->evicted > 0) {
    print_error(
        fmt::format("{} of them were evicted at once: {} holds at most {}; raise "
                    "CUBINERY_CACHE_LIMIT, or use the pack as a layer",
                    result->evicted, store.options().dir, bytes_text(store.options().limit_bytes)));
  }
  return finish(fmt::format("{} entries imported, {} were there, {} are damaged\n",
                            result->imported, result->present, result->damaged),
                {{"pack", pack},
                 {"imported", result->imported},
                 {"present", result->present},
                 {"damaged", result->damaged},
                 {"evicted", result->evicted}},
                result->damaged + result->evicted == 0 ? kExitOk : kExitFailed);
}

// Runs a subcommand on the store that the options name.
int on_store(const Cache& cache, const std::function<int(Store&)>& command) {
  if (const Status bad = check_output(cache.json); !bad.ok()) return usage_error(bad);
  const Result<Options> options = cache.library.resolve();
  if (!options) return usage_error(options.error());
  if (options->cache_dir.empty()) {
    return usage_error(
        Status(Code::kInvalidArgument, "no home directory; name one with --cache-dir"));
  }
  Store store(store_options(*options));
  return command(store);
}

void add_export_options(CLI::App& command, Cache* cache) {
  command.add_option("-o,--output", cache->pack, "The pack; replaced when there is one")
      ->type_name("FILE")
      ->required();
  command.add_option("--arch", cache->archs, "Only these architectures: sm_90a,sm_100a")
      ->delimiter(',')
      ->type_name("ARCH,...");
  command.add_option("--kernel", cache->kernels, "Only these kernels: gdn_decode")
      ->delimiter(',')
      ->type_name("NAME,...");
  command.footer(
      "The entries of every directory and layer. Name the pack in CUBINERY_CACHE_LAYERS or\n"
      "Options::cache_layers to use it as it is.\n"
      "Exit code: 1 when an entry cannot be used and is left out, 2 when none is left.");
}

}  // namespace

void add_cache(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("cache", "List, show, verify, shrink and ship the cache");
  command->require_subcommand(1);
  command->footer("cubinery cache COMMAND --help tells more.");
  const auto cache = std::make_shared<Cache>();
  const auto add = [&](const char* name, const char* help, auto member) {
    CLI::App* sub = command->add_subcommand(name, help);
    cache->library.add_to(*sub, LibraryOptions::Scope::kCache);
    sub->callback([cache, exit_code, member] {
      *exit_code =
          on_store(*cache, [&](Store& store) { return std::invoke(member, *cache, store); });
    });
    return sub;
  };
  const auto add_json = [&](CLI::App* sub) {
    sub->add_option("--json", cache->json, "Write the outcome, to stdout with -")
        ->type_name("FILE");
    return sub;
  };
  add_json(
      add("ls",
          "List the entries of every directory; exit code 1 when one is not there, or not readable",
          &Cache::ls));
  add("show", "Show one entry: identity, resources, cubin", &Cache::show)
      ->add_option("entry", cache->name, "Path, file name or start of the digest")
      ->required();
  add_json(add("verify",
               "Check every entry; exit code 1 when one is bad, removed or not, or a directory is "
               "not there or not readable",
               &Cache::verify))
      ->add_flag("--remove", cache->remove, "Delete damaged entries of the writable directory");
  add_json(add("gc", "Remove leftovers, damaged and least recently used entries", &Cache::gc))
      ->add_option(
          "--limit", cache->limit,
          "Bytes to keep at most: 4096, 64K, 512M, 1G, 2T (powers of 1024) [the cache's limit]")
      ->type_name("BYTES");
  add_export_options(*add_json(add("export", "Write entries into one file, a pack, to be shipped",
                                   &Cache::export_pack)),
                     cache.get());
  CLI::App* importing =
      add_json(add("import", "Take the entries of a pack into the cache", &Cache::import_pack));
  importing->add_option("pack", cache->pack, "A file of cubinery cache export")
      ->type_name("FILE")
      ->required();
  importing->footer(
      "Every entry is verified; those that are there are skipped.\n"
      "Exit code: 1 when an entry is damaged, cannot be written or was evicted at once.");
}

}  // namespace cubinery
